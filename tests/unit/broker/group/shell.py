"""A coordinator whose time, timers and store failures the test controls."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from qbus.broker.group import GroupCoordinator, Offset
from qbus.broker.group.requests import Heartbeat, JoinResult, SyncResult
from qbus.broker.metadata.cache import Subscriber
from qbus.broker.metadata.image import (
    BrokerInfo,
    BrokersChanged,
    Event,
    PartitionInfo,
    Topic,
)
from qbus.clock import ManualClock
from qbus.config import BrokerConfig, ShareGroupConfig
from qbus.errors import ErrorCode
from qbus.metadata import (
    Create,
    MetadataStore,
    Node,
    Op,
    Result,
    SessionState,
    Set,
    StoreUnavailable,
    TransactionTooLarge,
)
from qbus.metadata.database import Database

from .scene import make_join, make_sync

TOPIC_ID = b"t" * 16


class DirectStore(MetadataStore):
    """The embedded store's database without its thread; it fails and delays on request."""

    def __init__(self, database: Database | None = None) -> None:
        """``database``: that of another session, to share."""
        self.database = database or Database(Path(":memory:"))
        self.transactions: list[list[Op]] = []
        self.failures: list[Exception] = []
        self.loses_answers = False  # failed requests are still done
        self.max_bytes = 1 << 20  # of the data of one transaction
        self.gate = asyncio.Event()
        self.gate.set()
        self._state = SessionState.CONNECTED
        self._callbacks: list[Callable[[SessionState], None]] = []

    @property
    def state(self) -> SessionState:
        return self._state

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        self._callbacks.append(callback)

    def enter(self, state: SessionState) -> None:
        """Have the session suspended, resumed or lost."""
        self._state = state
        for callback in self._callbacks:
            callback(state)

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        self.database.close()

    async def get(self, path: str, watch: Callable[[], None] | None = None) -> Node | None:
        await self.gate.wait()
        return self.database.get(path)

    async def get_many(self, wanted: Sequence[str]) -> dict[str, Node]:
        await self.gate.wait()
        return self.database.get_many(wanted)

    async def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str]:
        return self.database.children(path)

    async def tree(self, path: str) -> dict[str, Node]:
        await self.gate.wait()
        self._fail()
        return self.database.tree(path)

    async def transaction(self, operations: Sequence[Op]) -> list[Result]:
        self.transactions.append(list(operations))
        await self.gate.wait()
        if not self.loses_answers:
            self._fail()
        if sum(len(op.data) for op in operations if isinstance(op, Create | Set)) > self.max_bytes:
            raise TransactionTooLarge("more than this store takes")
        self.database.begin()
        try:
            results = self.database.apply(operations)
        finally:
            self.database.commit()
        self._fail()
        return results

    def _check_session(self) -> None:
        if self._state is not SessionState.CONNECTED:
            raise StoreUnavailable("not connected")

    def _fail(self) -> None:
        self._check_session()
        if self.failures:
            raise self.failures.pop(0)

    def data(self, path: str) -> bytes | None:
        node = self.database.get(path)
        return node.data if node else None


class ManualTimers:
    """Timers that fire when the test lets time pass."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.set: list[_ManualTimer] = []

    def call_at(self, when: float, callback: Callable[[], None]) -> "_ManualTimer":
        timer = _ManualTimer(self, when, callback)
        self.set.append(timer)
        return timer

    async def advance(self, seconds: float) -> None:
        await settle()
        end = self.clock.monotonic() + seconds
        while due := [timer for timer in self.set if timer.when <= end + 1e-6]:
            timer = min(due, key=lambda timer: timer.when)
            self.clock.advance(max(0.0, timer.when - self.clock.monotonic()))
            timer.cancel()
            timer.callback()
            await settle()
        self.clock.advance(max(0.0, end - self.clock.monotonic()))
        await settle()


class _ManualTimer:
    def __init__(self, timers: ManualTimers, when: float, callback: Callable[[], None]) -> None:
        self.timers = timers
        self.when = when
        self.callback = callback

    def cancel(self) -> None:
        if self in self.timers.set:
            self.timers.set.remove(self)


async def settle() -> None:
    """Run the event loop until nothing is ready."""
    for _ in range(50):
        await asyncio.sleep(0)


class FakeMetadata:
    def __init__(self, *nodes: int) -> None:
        self.brokers = {node: BrokerInfo(node, f"broker-{node}", 9092) for node in nodes}
        self.topics: dict[str, Topic] = {}
        self.subscribers: list[Subscriber] = []

    @property
    def topics_by_id(self) -> dict[bytes, Topic]:
        return {topic.id: topic for topic in self.topics.values()}

    def add(self, name: str, partitions: int = 3, topic_id: bytes = TOPIC_ID) -> Topic:
        replicas = tuple(PartitionInfo(0, 0, (0,), (0,)) for _ in range(partitions))
        self.topics[name] = Topic(name, topic_id, replicas)
        return self.topics[name]

    def subscribe(self, subscriber: Subscriber) -> None:
        self.subscribers.append(subscriber)

    def group_config(self, _: str) -> ShareGroupConfig:
        return ShareGroupConfig(BrokerConfig(), {})

    async def publish(self, *events: Event) -> None:
        for subscriber in self.subscribers:
            outcome = subscriber(events)
            if outcome is not None:
                await outcome

    async def set_brokers(self, *nodes: int, stopping: Sequence[int] = ()) -> None:
        """Set the live brokers and the stopping ones among them."""
        self.brokers = {
            node: BrokerInfo(node, f"broker-{node}", 9092, is_stopping=node in stopping)
            for node in nodes
        }
        await self.publish(BrokersChanged())
        await settle()


class Shell:
    """A broker's coordinator, and its successors after restarts, on the same store."""

    def __init__(self, beside: "Shell | None" = None, /, **config: object) -> None:
        """``beside``: another broker, to share the store's content and the clock with."""
        self.clock: ManualClock = beside.clock if beside else ManualClock()
        self.timers: ManualTimers = beside.timers if beside else ManualTimers(self.clock)
        self.store: DirectStore = DirectStore(beside.store.database if beside else None)
        self.config = BrokerConfig({key.replace("_", "."): value for key, value in config.items()})
        self.metadata = FakeMetadata(self.config.node_id)
        self.groups = self._coordinator()

    def _coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.store, self.metadata, self.config, self.clock, timers=self.timers
        )

    def restart(self) -> None:
        """Kill the broker and start the next run without its memory and timers."""
        self.timers.set.clear()
        self.metadata.subscribers.clear()
        self.groups = self._coordinator()

    async def soon(self, work: Any) -> "asyncio.Task[Any]":
        """Start a task and run the event loop until nothing is ready."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        await settle()
        return task

    async def join(self, group_id: str, **changes: Any) -> "asyncio.Task[JoinResult]":
        return await self.soon(self.groups.join(group_id, make_join("", **changes)))

    async def sync(
        self, group_id: str, member_id: str, generation: int, **changes: Any
    ) -> "asyncio.Task[SyncResult]":
        return await self.soon(
            self.groups.sync(group_id, make_sync(member_id, generation, **changes))
        )

    async def settle_group(self, group_id: str, *member_ids: str, **changes: Any) -> None:
        """Bring members to a stable group, each with its own name as its assignment."""
        fields = {"needs_known_id": False} | changes
        joins = [await self.join(group_id, new_member_id=name, **fields) for name in member_ids]
        await self.timers.advance(6)
        joined = [await join for join in joins]
        given = {name: name.encode() for name in member_ids}
        syncs = [
            await self.sync(
                group_id,
                result.member_id,
                result.generation,
                protocol_type=result.protocol_type,
                assignments=given if result.leader == result.member_id else {},
            )
            for result in joined
        ]
        for sync in syncs:
            assert (await sync).error is ErrorCode.NONE

    async def heartbeat(self, group_id: str, member_id: str, generation: int) -> ErrorCode:
        return await self.groups.heartbeat(group_id, Heartbeat(member_id, None, generation))

    async def offset(self, group_id: str, topic: str, partition: int) -> int | None:
        committed = (await self.groups.offsets(group_id)).get(topic, {}).get(partition)
        return committed.offset if committed else None


def at(offset: int, topic_id: bytes = TOPIC_ID) -> Offset:
    return Offset(offset, topic_id=topic_id)
