"""Offsets in the log of groups without members: told only by the broker that leads the log."""

import asyncio
from typing import Any

import pytest

from qbus.broker.group.leadership import Leadership
from qbus.errors import ErrorCode
from qbus.metadata import Check, Node, StoreUnavailable
from qbus.metadata.znodes import PartitionStateNode
from qbus.names import OFFSETS_TOPIC

from .offset_shell import LOG, Followers, OffsetShell, refused, switch, two
from .shell import at

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
    store, get = brokers.one.store, brokers.one.store.get
    changes = [(0, 1), (0,)]

    async def overtaken(path: str, *rest: Any) -> Node | None:
        found = await get(path, *rest)
        if path.endswith("/state") and changes:
            brokers.one.shared.change_isr(brokers.index, *changes.pop())
        return found

    monkeypatch.setattr(store, "get", overtaken)
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
    store, get = brokers.one.store, brokers.one.store.get

    async def overtaken(path: str, *rest: Any) -> Node | None:
        if path.endswith("/state"):
            monkeypatch.undo()
            switch(brokers.one, "zookeeper")
            await brokers.one.look()
        return await get(path, *rest)

    monkeypatch.setattr(store, "get", overtaken)
    refusal = await refused(brokers.one.groups.offsets(GROUP))
    assert refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not brokers.one.log.loaded[brokers.index].machine.has(GROUP)
    assert await brokers.one.offset(GROUP, "t", 0) == 5


async def test_without_the_node_of_the_partition_nobody_leads(brokers: Two) -> None:
    leadership = Leadership(brokers.one.store, brokers.one.log, 0)  # type: ignore[arg-type]
    assert await leadership.checks(brokers.index)
    assert await leadership.checks(99) == []
