"""Random histories of commits, transactions, elections, restarts, failures and moves of offsets.

Whatever happens, a commit that was acknowledged is read, unless a later one replaced it; one that
was refused may have been stored or not.
"""

import random
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from qbus.broker.group import Offset, TopicPartition, moves
from qbus.broker.group.committed import CommittedOffsets
from qbus.broker.group.group_metadata import GroupMetadata
from qbus.broker.group.storage import OffsetsStorage, Storage
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import StoreUnavailable

from .offset_shell import PARTITIONS, OffsetShell, two
from .shell import at, settle

GROUPS = ("a", "b", "c")
STEPS = 60
NONE = -1


class History:
    """Two brokers, and what readers may be told of each group's offset of t-0."""

    def __init__(self, brokers: tuple[OffsetShell, OffsetShell], seed: int) -> None:
        self.brokers = brokers
        self.random = random.Random(seed)
        self.possible: dict[str, set[int]] = defaultdict(lambda: {NONE})
        self.open: dict[tuple[int, str], set[int]] = {}  # transactions: what may count with them
        self.next = 0

    async def run(self) -> None:
        steps = (
            *(self.commit,) * 6,
            *(self.bring,) * 3,
            *(self.end,) * 3,
            *(self.read,) * 3,
            self.elect,
            self.restart,
            self.fail,
            self.switch,
            *(self.look,) * 2,
        )
        for _ in range(STEPS):
            await self.random.choice(steps)()
            await settle()
        await self.finish()

    def coordinator(self, group: str) -> OffsetShell | None:
        """The broker that one of them believes to coordinate a group."""
        found = self.random.choice(self.brokers).groups.coordinator(group)
        return None if found is None else self.brokers[found.id]

    async def commit(self) -> None:
        group = self.random.choice(GROUPS)
        self.next += 1
        shell = self.coordinator(group)
        if shell is None:
            return
        try:
            await shell.groups.commit(group, {("t", 0): at(self.next)})
        except ApiError:
            self.possible[group].add(self.next)
            for key in [key for key in self.open if key[1] == group]:
                self.open[key].add(self.next)
        else:
            self.possible[group] = {self.next}
            for key in [key for key in self.open if key[1] == group]:
                self.open[key] = {self.next}  # what it brings came before

    async def bring(self) -> None:
        group = self.random.choice(GROUPS)
        producer = 7 + GROUPS.index(group)  # a marker ends all that its producer brought
        if any(known[1] == group for known in self.open):
            return  # one transaction for a group at a time, as a consumer has them
        self.next += 1
        shell = self.coordinator(group)
        if shell is None:
            return

        async def verify(_: int | None) -> ErrorCode:
            return ErrorCode.NONE

        try:
            await shell.groups.commit_in_transaction(
                group, {("t", 0): at(self.next)}, producer_id=producer, epoch=0, verify=verify
            )
        except ApiError:
            await self.end_one((producer, group), committed=False)
        else:
            self.open[producer, group] = {self.next}

    async def end(self) -> None:
        if self.open:
            key = self.random.choice(sorted(self.open))
            brought = self.open.pop(key)
            committed = self.random.random() < 0.6
            await self.end_one(key, committed=committed)
            if committed:
                self.possible[key[1]] = brought

    async def end_one(self, key: tuple[int, str], *, committed: bool) -> None:
        """As the transaction's coordinator does, which tries until it is done."""
        producer, group = key
        shared = self.brokers[0].shared
        index = self.brokers[0].log.partition_for(group)
        shared.mark_in(index, (producer, 0), committed=committed)
        for _ in range(20):
            shell = self.coordinator(group)
            if shell is not None:
                with suppress(ApiError):
                    await shell.groups.end_transaction(group, producer, 0, committed=committed)
                    return
            await self.everybody_looks()
        raise AssertionError(f"{key} cannot be ended")

    async def read(self) -> None:
        group = self.random.choice(GROUPS)
        shell = self.coordinator(group)
        if shell is None:
            return
        with suppress(ApiError):
            await self.check(shell, group)

    async def check(self, shell: OffsetShell, group: str) -> None:
        committed = await shell.groups.committed_offsets(group)
        found = committed.offsets.get("t", {}).get(0, at(NONE)).offset
        assert found in self.possible[group], (group, found, self.possible[group])
        self.possible[group] = {found}
        is_open = any(known == group for _, known in self.open)
        if not is_open:
            assert not committed.unstable, group

    async def elect(self) -> None:
        await self.brokers[0].shared.elect(
            self.random.randrange(PARTITIONS), self.random.choice((0, 1))
        )

    async def restart(self) -> None:
        shell = self.random.choice(self.brokers)
        shell.log.fails.clear()
        shell.store.failures.clear()
        shell.restart()
        shell.timers.set.clear()
        await shell.groups.start()

    async def fail(self) -> None:
        shell = self.random.choice(self.brokers)
        if self.random.random() < 0.5:
            shell.log.fails.append(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            shell.store.loses_answers = self.random.random() < 0.5
            shell.store.failures.append(StoreUnavailable("gone"))

    async def switch(self) -> None:
        wanted = self.random.choice(("log", "zookeeper"))
        for shell in self.brokers:
            shell.config.set_dynamic({"offsets.storage": wanted}, {})

    async def look(self) -> None:
        number = self.random.choice((0, 1))
        await self.brokers[number].groups.look_after_storage(is_controller=number == 0)

    async def everybody_looks(self) -> None:
        for number, shell in enumerate(self.brokers):
            shell.log.fails.clear()
            shell.store.failures.clear()
            await shell.groups.look_after_storage(is_controller=number == 0)
            await settle()

    async def finish(self) -> None:
        """End everything, move to where offsets are wanted, and read all of it."""
        while self.open:
            await self.end()
        for _ in range(6):
            await self.everybody_looks()
        assert self.brokers[0].groups.storage is self.brokers[1].groups.storage
        assert self.brokers[0].groups.storage is not Storage.RETURNING
        for group in GROUPS:
            shell = self.coordinator(group)
            assert shell is not None
            await self.check(shell, group)


@pytest.mark.parametrize("seed", range(50))
async def test_no_acknowledged_offset_is_lost(seed: int) -> None:
    await History(await two(), seed).run()


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(0, 10_000, 500))
async def test_nor_in_many_histories(start: int) -> None:
    await run_all(range(1_000 + start, 1_500 + start))


async def nothing(*_: object) -> None:
    """What a planted fault does instead."""


async def straight_to_the_log(
    committed: CommittedOffsets,
    metadata: GroupMetadata,
    offsets: Mapping[TopicPartition, Offset | None],
) -> ErrorCode:
    """Commit without a look at what transactions brought to the store before."""
    if metadata.is_in_log:
        return await committed._log.save(metadata.group_id, offsets)
    return await committed._registry.save_offsets(metadata, offsets)


async def ended(*_: object, committed: bool) -> None:
    """Forget that a transaction has ended."""


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "a broker that has not heard of a move loads groups": (
        OffsetsStorage,
        "guards",
        property(lambda _: []),
    ),
    "what is in the store stays there": (moves, "_to_log", nothing),
    "what is in the log stays there": (moves, "_to_store", nothing),
    "what transactions brought before counts": (CommittedOffsets, "save", straight_to_the_log),
    "a transaction's end is not told to groups": (CommittedOffsets, "end_transaction", ended),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, instead = FAULTS[fault]
    monkeypatch.setattr(owner, name, instead)
    with pytest.raises(AssertionError):
        await run_all(range(300))


async def run_all(seeds: range) -> None:
    for seed in seeds:
        await History(await two(), seed).run()
