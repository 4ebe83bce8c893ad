"""Offsets in the log of groups without members: told only by the broker that leads the log."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from qbus.broker.group.leadership import Leadership
from qbus.broker.group.requests import Leave, Leaver
from qbus.broker.group.znodes import GroupPaths
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Check, Node, Set, StoreUnavailable
from qbus.metadata.znodes import PartitionStateNode
from qbus.names import OFFSETS_TOPIC

from .offset_shell import (
    LOG,
    PARTITIONS,
    Followers,
    OffsetShell,
    P,
    bring,
    is_unstable,
    refused,
    switch,
    two,
)
from .shell import at, settle

GROUP = "simple"


class Two:
    """Two brokers: the first led a group's partition, and has not heard that the second does."""

    def __init__(self, one: OffsetShell, other: OffsetShell) -> None:
        self.one = one
        self.other = other
        self.index = one.log.partition_for(GROUP)

    @property
    def partition(self) -> Any:
        return self.one.log.loaded[self.index].partition

    async def depose(self) -> None:
        await self.one.shared.elect(self.index, 1, is_heard=False)

    def checks(self) -> int:
        """How often the first broker had the store check who leads."""
        path = PartitionStateNode.path(OFFSETS_TOPIC, self.index)
        return sum(
            isinstance(operation, Check) and operation.path == path
            for operations in self.one.store.transactions
            for operation in operations
        )


@pytest.fixture
async def brokers() -> Two:
    made = Two(*await two(**LOG))
    made.partition.has_others_in_sync = True
    await made.one.groups.commit(GROUP, {("t", 0): at(5)})
    return made


async def test_a_leader_tells_what_was_committed(brokers: Two) -> None:
    assert await brokers.one.offset(GROUP, "t", 0) == 5
    assert brokers.checks() == 1


async def test_a_deposed_leader_tells_nobody_what_is_older_than_the_next_one_has(
    brokers: Two,
) -> None:
    await brokers.depose()
    await brokers.other.groups.commit(GROUP, {("t", 0): at(6)})
    assert await refused(brokers.one.groups.offsets(GROUP)) is ErrorCode.NOT_COORDINATOR
    assert await brokers.other.offset(GROUP, "t", 0) == 6


async def test_nor_that_a_group_has_no_offsets_which_has_some_there(brokers: Two) -> None:
    new = next(
        name
        for name in (f"new-{number}" for number in range(100))
        if brokers.one.log.partition_for(name) == brokers.index
    )
    assert await brokers.one.offset(new, "t", 0) is None
    await brokers.depose()
    await brokers.other.groups.commit(new, {("t", 0): at(7)})
    assert await refused(brokers.one.groups.offsets(new)) is ErrorCode.NOT_COORDINATOR


async def test_nor_that_of_many_groups_which_do_not_exist(brokers: Two) -> None:
    names = [f"new-{number}" for number in range(100)]
    here = {one for one in names if brokers.one.log.partition_for(one) == brokers.index}
    assert await brokers.one.groups.uncommitted(names) == set(names)
    await brokers.depose()
    await brokers.other.groups.commit(min(here), {("t", 0): at(7)})
    assert await brokers.one.groups.uncommitted(names) == set(names) - here


async def test_nor_that_a_transaction_has_ended_which_has_not_there(brokers: Two) -> None:
    await brokers.depose()
    late = brokers.one.groups.end_transaction(GROUP, 7, 0, committed=True)
    assert await refused(late) is ErrorCode.NOT_COORDINATOR


async def test_a_leader_that_was_elected_again_is_not_the_one_that_it_was(brokers: Two) -> None:
    await brokers.depose()
    await brokers.other.groups.commit(GROUP, {("t", 0): at(6)})
    brokers.one.shared.epochs[brokers.index] += 1
    brokers.one.shared.leaders[brokers.index] = 0
    brokers.one.shared.change_isr(brokers.index, 0, 1)
    assert await refused(brokers.one.groups.offsets(GROUP)) is ErrorCode.NOT_COORDINATOR


@pytest.fixture
async def stored(brokers: Two) -> Two:
    """The group has a node, and no members."""
    await brokers.one.settle_group(GROUP, "a")
    await brokers.one.groups.leave(GROUP, Leave((Leaver("a", None),)))
    assert brokers.one.store.data(GroupPaths(GROUP).group) is not None
    return brokers


class TestAGroupWithANode:
    async def test_is_asked_about_once(self, stored: Two) -> None:
        before = stored.checks()
        for _ in range(3):
            assert await stored.one.offset(GROUP, "t", 0) == 5
        assert stored.checks() == before + 1

    async def test_is_not_told_of_by_a_deposed_leader_that_loads_it_last(self, stored: Two) -> None:
        """The node's fence is its own, then."""
        assert await stored.one.offset(GROUP, "t", 0) == 5
        await stored.depose()
        await stored.other.groups.commit(GROUP, {("t", 0): at(6)})
        for _ in range(3):
            assert await refused(stored.one.groups.offsets(GROUP)) is ErrorCode.NOT_COORDINATOR

    async def test_is_not_told_of_by_a_deposed_leader_that_made_the_node(
        self, brokers: Two
    ) -> None:
        """The leader had loaded the group before, and need not do so again."""
        await brokers.depose()
        await brokers.other.groups.commit(GROUP, {("t", 0): at(6)})
        await brokers.one.settle_group(GROUP, "a")
        assert await refused(brokers.one.groups.offsets(GROUP)) is ErrorCode.NOT_COORDINATOR
        assert await brokers.other.offset(GROUP, "t", 0) == 6

    async def test_is_not_told_of_by_a_deposed_leader_as_before_the_end_of_a_transaction(
        self, stored: Two
    ) -> None:
        """The marker needs no group: the leader has not loaded it yet, nor taken the fence."""
        assert await stored.one.offset(GROUP, "t", 0) == 5
        await bring(stored.one, 8, group=GROUP)
        assert await is_unstable(stored.one, GROUP)
        stored.other.store.gate.clear()
        await stored.depose()
        stored.one.shared.mark_in(stored.index, (P, 0), committed=True)
        assert await refused(stored.one.groups.offsets(GROUP)) is ErrorCode.NOT_COORDINATOR
        stored.other.store.gate.set()
        assert await stored.other.offset(GROUP, "t", 0) == 8

    async def test_is_asked_about_each_time_while_transactions_bring_offsets(
        self, stored: Two
    ) -> None:
        before = stored.checks()
        await bring(stored.one, 8, group=GROUP)
        for _ in range(2):
            assert await stored.one.offset(GROUP, "t", 0) == 5
        assert stored.checks() == before + 2
        stored.one.shared.mark_in(stored.index, (P, 0), committed=True)
        for _ in range(2):
            assert await stored.one.offset(GROUP, "t", 0) == 8
        assert stored.checks() == before + 2

    async def test_is_told_of_by_the_fence_where_nobody_else_could_lead(self, stored: Two) -> None:
        stored.partition.has_others_in_sync = False
        before = stored.checks()
        assert await stored.one.offset(GROUP, "t", 0) == 5
        assert stored.checks() == before


class TestManyGroups:
    async def offsets(self, brokers: Two, names: list[str]) -> list[Any]:
        found = await asyncio.gather(
            *(brokers.one.groups.offsets(name) for name in names), return_exceptions=True
        )
        await settle()
        return found

    @pytest.fixture
    async def names(self, brokers: Two) -> list[str]:
        names = [f"group-{number}" for number in range(200)]
        for name in names:
            await brokers.one.groups.commit(name, {("t", 0): at(5)})
        for shard in brokers.one.log.loaded.values():
            shard.partition.has_others_in_sync = True
        brokers.one.store.transactions.clear()
        return names

    async def test_share_a_question(self, brokers: Two, names: list[str]) -> None:
        found = await self.offsets(brokers, names)
        assert [one["t"][0].offset for one in found] == [5] * 200
        assert [len(operations) for operations in brokers.one.store.transactions] == [PARTITIONS]

    async def test_do_not_share_one_that_was_asked_before(
        self, brokers: Two, names: list[str]
    ) -> None:
        """Its answer may be older than what was acknowledged before they were asked about."""
        store = brokers.one.store
        store.gate.clear()
        first = asyncio.ensure_future(self.offsets(brokers, names[:50]))
        await settle()
        others = asyncio.ensure_future(self.offsets(brokers, names[50:]))
        await settle()
        more = asyncio.ensure_future(self.offsets(brokers, names))
        await settle()
        store.gate.set()
        for asked in (first, others, more):
            assert all(one["t"][0].offset == 5 for one in await asked)
        assert [len(operations) for operations in store.transactions] == [PARTITIONS] * 3

    async def test_fail_alone_where_another_broker_leads(
        self, brokers: Two, names: list[str]
    ) -> None:
        await brokers.depose()
        elsewhere = [brokers.one.log.partition_for(name) == brokers.index for name in names]
        assert any(elsewhere)
        found = await self.offsets(brokers, names)
        assert [isinstance(one, ApiError) for one in found] == elsewhere

    async def test_fail_alone_where_a_node_is_illegible_or_has_changed(
        self, brokers: Two, names: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, get_many = brokers.one.store, brokers.one.store.get_many

        async def overtaken(wanted: Sequence[str]) -> dict[str, Node]:
            found = await get_many(wanted)
            brokers.one.shared.change_isr(brokers.index, 0, 1)
            return found

        monkeypatch.setattr(store, "get_many", overtaken)
        found = await self.offsets(brokers, names)
        assert all(one["t"][0].offset == 5 for one in found)
        monkeypatch.undo()
        path = PartitionStateNode.path(OFFSETS_TOPIC, brokers.index)
        await store.transaction([Set(path, b"?")])
        found = await self.offsets(brokers, names)
        elsewhere = [brokers.one.log.partition_for(name) == brokers.index for name in names]
        assert [isinstance(one, ApiError) for one in found] == elsewhere


async def test_where_no_other_replica_could_lead_the_store_is_not_asked(brokers: Two) -> None:
    brokers.partition.has_others_in_sync = False
    assert await brokers.one.offset(GROUP, "t", 0) == 5
    assert brokers.checks() == 0
    brokers.partition.followers = Followers(proposed="another one in sync")
    assert await brokers.one.offset(GROUP, "t", 0) == 5
    assert brokers.checks() == 1


async def test_a_change_of_the_replicas_in_sync_is_none_of_the_leader(
    brokers: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, get, get_many = brokers.one.store, brokers.one.store.get, brokers.one.store.get_many
    changes = [(0, 1), (0,)]

    def change() -> None:
        if changes:
            brokers.one.shared.change_isr(brokers.index, *changes.pop())

    async def overtaken(path: str, *rest: Any) -> Node | None:
        found = await get(path, *rest)
        if path.endswith("/state"):
            change()
        return found

    async def all_overtaken(wanted: Sequence[str]) -> dict[str, Node]:
        found = await get_many(wanted)
        change()
        return found

    monkeypatch.setattr(store, "get", overtaken)
    monkeypatch.setattr(store, "get_many", all_overtaken)
    assert await brokers.one.offset(GROUP, "t", 0) == 5
    assert not changes
    changes += [(0,)] * 50
    refusal = await refused(brokers.one.groups.offsets(GROUP))
    assert refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_store_that_does_not_answer_has_the_client_ask_again(brokers: Two) -> None:
    brokers.one.store.failures.append(StoreUnavailable("gone"))
    assert await refused(brokers.one.groups.offsets(GROUP)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await brokers.one.offset(GROUP, "t", 0) == 5


async def test_what_is_loaded_anew_meanwhile_is_not_what_was_confirmed(brokers: Two) -> None:
    leadership = Leadership(brokers.one.store, brokers.one.log, 0)  # type: ignore[arg-type]
    brokers.one.store.gate.clear()
    asking = asyncio.ensure_future(leadership.confirm(GROUP))
    await asyncio.sleep(0)
    brokers.one.log.load(brokers.index)
    brokers.one.store.gate.set()
    assert await refused(asking) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_what_is_moved_out_of_the_log_meanwhile_is_not_taken_for_missing(
    brokers: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, get_many = brokers.one.store, brokers.one.store.get_many

    async def overtaken(wanted: Sequence[str]) -> dict[str, Node]:
        if any(path.endswith("/state") for path in wanted):
            monkeypatch.undo()
            switch(brokers.one, "zookeeper")
            await brokers.one.look()
        return await get_many(wanted)

    monkeypatch.setattr(store, "get_many", overtaken)
    refusal = await refused(brokers.one.groups.offsets(GROUP))
    assert refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not brokers.one.log.loaded[brokers.index].machine.has(GROUP)
    assert await brokers.one.offset(GROUP, "t", 0) == 5


async def test_without_the_node_of_the_partition_nobody_leads(brokers: Two) -> None:
    leadership = Leadership(brokers.one.store, brokers.one.log, 0)  # type: ignore[arg-type]
    assert await leadership.checks(brokers.index)
    assert await leadership.checks(99) == []
