"""Brokers whose groups keep their offsets in a log that the test leads, loads and loses."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import pytest

from qbus.broker.group.offset_log import OffsetLog
from qbus.broker.group.offset_machine import OffsetsMachine
from qbus.broker.group.storage import Storage
from qbus.broker.internal_logs.machine import Outcome, Producer
from qbus.broker.internal_logs.topic import partition_for
from qbus.broker.log import Verification
from qbus.broker.metadata.image import BrokerInfo, PartitionInfo, Topic
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Create, Set
from qbus.metadata.znodes import PartitionStateNode
from qbus.names import OFFSETS_TOPIC

from .shell import Shell, at, settle

PARTITIONS = 3
P = 7
"""A producer's id."""
LOG = {"offsets_storage": "log"}


class SharedLog:
    """The records and markers of ``__consumer_offsets``, and who leads each partition."""

    def __init__(self) -> None:
        self.entries: list[list[Any]] = [[] for _ in range(PARTITIONS)]
        self.leaders: dict[int, int] = {}
        self.epochs = dict.fromkeys(range(PARTITIONS), 0)
        self.brokers: dict[int, FakeInternalLog] = {}

    async def elect(self, index: int, node: int, *, is_heard: bool = True) -> None:
        """Let a broker lead a partition, after the one that did, which may not hear of it yet."""
        former = self.brokers.get(self.leaders.get(index, -1))
        self.leaders[index] = node
        self.epochs[index] += 1
        self.change_isr(index, node)
        if former is not None and is_heard:
            former.unload(index)
        self.brokers[node].load(index)
        await settle()

    def change_isr(self, index: int, *isr: int) -> None:
        """Let these replicas be in sync."""
        state = PartitionStateNode(self.leaders[index], self.epochs[index], isr, 1)
        self._write(PartitionStateNode.path(OFFSETS_TOPIC, index), state.encode())

    def _write(self, path: str, data: bytes) -> None:
        database = next(iter(self.brokers.values())).shell.store.database
        database.begin()
        if database.get(path) is None:
            database.apply([Create(path, data)])
        else:
            database.apply([Set(path, data)])
        database.commit()

    def mark(self, producer: Producer, *, committed: bool) -> None:
        """End a producer's transaction in every partition that it is open in."""
        for index in range(PARTITIONS):
            self.mark_in(index, producer, committed=committed)

    def mark_in(self, index: int, producer: Producer, *, committed: bool) -> None:
        """The same in one partition."""
        entries = self.entries[index]
        if not any(entry[0] == "record" and entry[4] == producer for entry in entries):
            return
        entries.append(("marker", producer, committed))
        shard = self.brokers[self.leaders[index]].loaded[index]
        shard.machine.marker(*producer, committed=committed)
        shard.partition.marked(*producer)


class Followers(NamedTuple):
    proposed: object = None


class Log(NamedTuple):
    log_end_offset: int = 0


class FakePartition:
    def __init__(self, index: int) -> None:
        self.index = index
        self.followers: Followers | None = Followers()
        self.has_others_in_sync = False
        self.error = ErrorCode.NONE
        self.high_watermark = 0
        self.log = Log()
        self.open: dict[int, int] = {}
        self.tokens: dict[int, Verification] = {}

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, begins_with_zero: bool
    ) -> Verification | None:
        if self.open.get(producer_id) == epoch:
            return None
        made = Verification(
            producer_id, epoch, sequence, begins_with_zero=begins_with_zero, now_ms=0
        )
        return self.tokens.setdefault(producer_id, made)

    def marked(self, producer_id: int, epoch: int) -> None:
        self.open.pop(producer_id, None)
        asked = self.tokens.get(producer_id)
        if asked is not None and asked.is_void_after(epoch):
            del self.tokens[producer_id]

    def check_transaction(
        self, producer_id: int, epoch: int, verification: Verification | None
    ) -> None:
        if self.open.get(producer_id) == epoch:
            return
        if verification is None or self.tokens.get(producer_id) is not verification:
            raise ApiError(ErrorCode.INVALID_TXN_STATE)
        self.open[producer_id] = epoch
        self.tokens.pop(producer_id, None)

    def may_be_deposed(self, asked_since: float) -> bool:
        assert asked_since == math.inf
        return self.has_others_in_sync


class FakeShard:
    def __init__(self, index: int, epoch: int) -> None:
        self.epoch = epoch
        self.partition = FakePartition(index)
        self.machine = OffsetsMachine(index)


class FakeInternalLog:
    """What a broker has of the log."""

    def __init__(self, shell: Shell, shared: SharedLog, node: int) -> None:
        self.shell = shell
        self.shared = shared
        self.node = node
        self.loaded: dict[int, FakeShard] = {}
        self.fails: list[Exception] = []
        self.meanwhile: Callable[[], None] | None = None  # done once, before the next answer
        self.pause = 0  # turns of the loop between that and the answer
        shared.brokers[node] = self

    def load(self, index: int) -> None:
        shard = self.loaded[index] = FakeShard(index, self.shared.epochs[index])
        for entry in self.shared.entries[index]:
            if entry[0] == "marker":
                shard.machine.marker(*entry[1], committed=entry[2])
                shard.partition.open.pop(entry[1][0], None)
            else:
                _, key, value, position, producer = entry
                shard.machine.replay(key, value, position, 0, producer)
                if producer is not None:
                    shard.partition.open[producer[0]] = producer[1]
        self.shell.groups.shard_loaded(shard)  # type: ignore[arg-type]

    def unload(self, index: int) -> None:
        shard = self.loaded.pop(index, None)
        if shard is not None:
            self.shell.groups.shard_unloaded(shard)  # type: ignore[arg-type]

    def partition_for(self, key: str) -> int:
        return partition_for(key, PARTITIONS)

    def leader(self, index: int) -> BrokerInfo | None:
        return self.shell.metadata.brokers.get(self.shared.leaders.get(index, -1))

    async def coordinator(self, key: str) -> BrokerInfo | None:
        return self.leader(self.partition_for(key))

    def shard(self, key: str) -> FakeShard:
        shard = self.loaded.get(self.partition_for(key))
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return shard

    def shards(self) -> Iterator[FakeShard]:
        return iter(self.loaded.values())

    def machines(self) -> Iterator[OffsetsMachine]:
        return (shard.machine for shard in self.loaded.values())

    async def ask(
        self, key: str, operation: Callable[..., Outcome[Any]], *, check: Any = None
    ) -> Any:
        await asyncio.sleep(0)
        shard = self.shard(key)
        if self.fails:
            raise self.fails.pop(0)
        if check is not None:
            check(shard.partition)
        now_ms = self.shell.clock.time_ms()
        outcome = operation(shard.machine, now_ms)
        entries = self.shared.entries[shard.partition.index]
        for record_key, value in outcome.records:
            position = len(entries)
            entries.append(("record", record_key, value, position, outcome.producer))
            shard.machine.replay(record_key, value, position, now_ms, outcome.producer)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
            for _ in range(self.pause):
                await asyncio.sleep(0)
        return outcome.answer

    def submit(self, key: str, operation: Any, *, check: Any = None) -> "asyncio.Task[Any]":
        return asyncio.ensure_future(self.ask(key, operation, check=check))


class OffsetShell(Shell):
    """A broker with the log."""

    def __init__(
        self, shared: SharedLog, beside: "Shell | None" = None, /, **config: object
    ) -> None:
        self.shared = shared
        super().__init__(beside, **config)
        replica = PartitionInfo(0, 0, (0,), (0,))
        self.metadata.topics[OFFSETS_TOPIC] = Topic(
            OFFSETS_TOPIC, b"o" * 16, (replica,) * PARTITIONS
        )
        self.log = FakeInternalLog(self, shared, self.config.node_id)
        self.groups.use_log(OffsetLog(self.log, self.metadata.topics))  # type: ignore[arg-type]

    def restart(self) -> None:
        super().restart()
        loaded, self.log.loaded = list(self.log.loaded), {}
        self.groups.use_log(OffsetLog(self.log, self.metadata.topics))  # type: ignore[arg-type]
        for index in loaded:
            self.log.load(index)

    async def look(self, *, is_controller: bool = True) -> None:
        """Let some seconds pass for what is done from time to time."""
        for _ in range(4):
            await self.groups.look_after_storage(is_controller=is_controller)
            await settle()


async def alone(**config: object) -> OffsetShell:
    """A broker that leads the whole log."""
    shell = OffsetShell(SharedLog(), **config)
    for index in range(PARTITIONS):
        await shell.shared.elect(index, shell.config.node_id)
    await shell.groups.start()
    await settle()
    return shell


async def two(**config: object) -> tuple[OffsetShell, OffsetShell]:
    """Two brokers; the first leads the whole log."""
    shared = SharedLog()
    one = OffsetShell(shared, node_id=0, **config)
    other = OffsetShell(shared, one, node_id=1, **config)
    for shell in (one, other):
        await shell.metadata.set_brokers(0, 1)
    for index in range(PARTITIONS):
        await shared.elect(index, 0)
    for shell in (one, other):
        await shell.groups.start()
    await settle()
    return one, other


async def refused(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        await work
    return caught.value.code


def answering(error: ErrorCode = ErrorCode.NONE) -> Callable[[int | None], Awaitable[ErrorCode]]:
    async def verify(_: int | None) -> ErrorCode:
        return error

    return verify


async def bring(
    shell: Shell, offset: int, *, epoch: int = 0, group: str = "g", **options: object
) -> None:
    """Commit an offset of t-0 in a transaction of the producer P."""
    fields = {"verify": answering(), "producer_id": P, "epoch": epoch} | options
    await shell.groups.commit_in_transaction(group, {("t", 0): at(offset)}, **fields)  # type: ignore[arg-type]


async def is_unstable(shell: Shell, group: str = "g") -> bool:
    return ("t", 0) in (await shell.groups.committed_offsets(group)).unstable


def where(shell: Shell) -> Storage:
    return shell.groups.storage


def switch(shell: Shell, storage: str) -> None:
    shell.config.set_dynamic({"offsets.storage": storage}, {})
