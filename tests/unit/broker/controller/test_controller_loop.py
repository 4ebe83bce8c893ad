"""The active controller over a real store, while brokers come and go."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from qbus.broker.controller import Controller, NewTopic, Reassignment, expire_previous_registration
from qbus.broker.controller.controller_election import ControllerElection
from qbus.broker.controller.controller_loop import ControllerLoop
from qbus.broker.metadata.cache import MetadataCache
from qbus.broker.metadata.image import BrokerInfo, Event, PartitionInfo
from qbus.clock import ManualClock
from qbus.config import BrokerConfig
from qbus.metadata import Create, Delete, Op, Result, Set, StoreUnavailable
from qbus.metadata.feed import KEPT, PATH, announce
from qbus.metadata.znodes import (
    CONTROLLER,
    NO_LEADER,
    BrokerNode,
    ChangeNode,
    ConfigNode,
    ControllerNode,
    PartitionStateNode,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane, register
from tests.support.waiting import eventually

OTHERS = (BrokerInfo(2, "b2", 9092), BrokerInfo(3, "b3", 9092))


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path, others=OTHERS) as plane:
        yield plane


def partition(plane: MetadataPlane, topic: str = "t", index: int = 0) -> PartitionInfo:
    return plane.metadata.topics[topic].partitions[index]


async def leave(plane: MetadataPlane, node_id: int) -> None:
    """Remove a broker as the end of its session does: without a change in the feed."""
    await plane.store.transaction([Delete(BrokerNode.path(node_id))])


async def write(plane: MetadataPlane, state: PartitionStateNode) -> None:
    await plane.store.transaction(
        [
            Set(PartitionStateNode.path("t", 0), state.encode()),
            announce(ChangeNode(states={"t": (0,)}).encode()),
        ]
    )


async def test_partitions_of_a_dead_broker_get_other_leaders(plane: MetadataPlane) -> None:
    many = {index: [2, 3, 1] for index in range(1500)}
    await plane.controller.create_topics([NewTopic("t", assignment=many)])
    await leave(plane, 2)
    await eventually(lambda: {one.leader for one in plane.metadata.topics["t"].partitions} == {3})
    assert {one.isr for one in plane.metadata.topics["t"].partitions} == {(3, 1)}
    assert {one.elr for one in plane.metadata.topics["t"].partitions} == {()}


async def test_elections_do_not_wait_for_what_the_controllers_own_partitions_wait_for(
    plane: MetadataPlane,
) -> None:
    await plane.controller.create_topics([NewTopic("t", assignment={0: [2, 3]})])
    go_on = asyncio.Event()

    async def wait_for_a_disk(_: Sequence[Event]) -> None:
        await go_on.wait()

    async def leader() -> int:
        node = await plane.store.get(PartitionStateNode.path("t", 0))
        assert node is not None
        return PartitionStateNode.decode(node.data).leader

    plane.metadata.subscribe(wait_for_a_disk, is_first=True)
    await leave(plane, 2)
    async with asyncio.timeout(10):
        while await leader() != 3:  # noqa: ASYNC110 - the store alone can tell
            await asyncio.sleep(0.005)
    go_on.set()


async def test_who_is_back_is_elected_for_what_nobody_else_holds(plane: MetadataPlane) -> None:
    await plane.controller.create_topics([NewTopic("t", assignment={0: [2]})])
    await leave(plane, 2)
    await eventually(lambda: partition(plane).leader == NO_LEADER)
    await register(plane.store, OTHERS[0], plane.clock)
    await eventually(lambda: partition(plane).leader == 2)
    assert partition(plane).isr == (2,)


async def test_a_leader_that_resigns_is_replaced(plane: MetadataPlane) -> None:
    await plane.controller.create_topics([NewTopic("t", assignment={0: [2, 3]})])
    await write(plane, PartitionStateNode(-1, 1, (2, 3), 1))
    await eventually(lambda: partition(plane).leader != NO_LEADER)


async def test_a_topic_that_allows_it_from_now_on_gets_an_unclean_leader(
    plane: MetadataPlane,
) -> None:
    await plane.controller.create_topics([NewTopic("t", assignment={0: [2, 3]})])
    await write(plane, PartitionStateNode(2, 5, (2,), 1))
    await leave(plane, 2)
    await eventually(lambda: partition(plane).elr == (2,))
    assert partition(plane).leader == NO_LEADER
    config = ConfigNode({"unclean.leader.election.enable": "true"}).encode()
    await plane.store.transaction(
        [
            Create(ConfigNode.topic_path("t"), config),
            announce(ChangeNode(configs=("t",)).encode()),
        ]
    )
    await eventually(lambda: partition(plane).leader == 3)
    assert (partition(plane).isr, partition(plane).elr) == ((3,), ())


async def test_a_concurrent_write_is_not_overwritten(
    plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker's transaction comes just before the controller's."""
    topics = [NewTopic("t", assignment={0: [2, 3, 1], 1: [2, 3, 1]})]
    await plane.controller.create_topics(topics)
    transaction = plane.store.transaction
    theirs = PartitionStateNode(2, 0, (2, 1), 1)

    async def overtaken(ops: Sequence[Op]) -> list[Result]:
        if any(isinstance(op, Set) and op.path.endswith("/state") for op in ops):
            monkeypatch.undo()
            await write(plane, theirs)
        return await transaction(ops)

    monkeypatch.setattr(plane.store, "transaction", overtaken)
    await leave_with(transaction, 2)
    await eventually(lambda: partition(plane).leader == 1)
    await eventually(lambda: partition(plane, index=1).leader == 3)
    assert partition(plane).isr == (1,)


async def leave_with(transaction: object, node_id: int) -> None:
    assert callable(transaction)
    await transaction([Delete(BrokerNode.path(node_id))])


async def test_a_store_that_fails_is_tried_again(
    plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.controller.create_topics([NewTopic("t", assignment={0: [2, 3]})])
    transaction = plane.store.transaction
    failures = [StoreUnavailable("not connected"), RuntimeError("whatever")]

    async def failing(ops: Sequence[Op]) -> list[Result]:
        if failures and any(isinstance(op, Set) for op in ops):
            raise failures.pop()
        return await transaction(ops)

    monkeypatch.setattr(plane.controller._loop, "_retry_s", 0.01)
    monkeypatch.setattr(plane.store, "transaction", failing)
    await leave(plane, 2)
    await eventually(lambda: partition(plane).leader == 3)
    assert not failures


async def test_another_broker_becomes_controller_and_decides_at_once(
    plane: MetadataPlane,
) -> None:
    """The controller dies together with a leader."""
    await plane.controller.create_topics([NewTopic("t", assignment={0: [2, 3]})])
    second = Controller(plane.store, plane.metadata, BrokerConfig({"node.id": "3"}), plane.clock)
    await second.start(0)
    assert plane.metadata.controller_id == 1
    await plane.controller.stop()
    await plane.store.transaction([Delete(CONTROLLER), Delete(BrokerNode.path(2))])
    await eventually(lambda: partition(plane).leader == 3)
    assert second.is_active
    assert plane.metadata.cluster.controller_epoch == 2
    await second.stop()


async def test_only_the_controller_decides_on_its_own(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path, others=OTHERS) as plane:
        await plane.controller.create_topics([NewTopic("t", assignment={0: [2, 3]})])
        theirs = ControllerNode(3, 0, 0).encode()
        await plane.store.transaction([Set(CONTROLLER, theirs), Delete(BrokerNode.path(2))])
        await eventually(lambda: 2 not in plane.metadata.brokers)
        await plane.controller._loop.decide_due()
        assert not plane.controller.is_active
        assert partition(plane).leader == 2


async def test_moves_end_when_everybody_is_in_sync(plane: MetadataPlane) -> None:
    await plane.controller.create_topics([NewTopic("t", assignment={0: [2]})])
    await plane.controller.reassign([Reassignment("t", {0: [1, 3]})])
    state = partition(plane).state(1)
    await write(plane, state._replace(isr=(2, 1)))
    await write(plane, state._replace(isr=(2, 1, 3)))
    await eventually(lambda: not partition(plane).is_moving)
    assert (partition(plane).replicas, partition(plane).leader) == ((1, 3), 1)


async def test_preferred_replicas_lead_again(plane: MetadataPlane) -> None:
    await plane.controller.create_topics([NewTopic("t", assignment={0: [2, 3]})])
    await write(plane, PartitionStateNode(3, 1, (3, 2), 1))
    await eventually(lambda: partition(plane).leader == 3)
    await plane.controller._loop.rebalance()
    assert partition(plane).leader == 2


async def test_a_stopping_broker_hands_over_to_replicas_in_sync(plane: MetadataPlane) -> None:
    topics = [NewTopic("t", assignment={0: [1, 2]}), NewTopic("mine", assignment={0: [1]})]
    await plane.controller.create_topics(topics)
    await plane.controller.hand_over()
    assert partition(plane).leader == 2
    assert partition(plane, "mine").leader == 1, "there is nobody else, so nobody is waited for"


async def test_a_stopping_broker_waits_for_replicas_that_come_in_sync(plane: MetadataPlane) -> None:
    await plane.controller.create_topics([NewTopic("t", assignment={0: [1, 2]})])
    state = partition(plane).state(1)
    await write(plane, state._replace(isr=(1,)))
    await eventually(lambda: partition(plane).isr == (1,))
    handing = asyncio.ensure_future(plane.controller.hand_over())
    await asyncio.sleep(0)
    await write(plane, state._replace(isr=(1, 2)))
    await asyncio.wait_for(handing, 10)
    assert partition(plane).leader == 2


async def test_the_feed_is_kept_short_by_the_controller(plane: MetadataPlane) -> None:
    for _ in range(KEPT + 50):
        await plane.store.transaction([announce(b"{}")])
    await eventually(lambda: plane.controller._loop.pruned > 0, 30)
    # It may have pruned before the last ones were written.
    assert KEPT <= len(await plane.store.children(PATH)) < KEPT + 50


async def test_a_previous_run_that_is_still_controller_is_replaced(tmp_path: Path) -> None:
    """A broker is killed and restarted before its session ends."""
    async with metadata_plane(tmp_path) as plane:
        await plane.store.transaction(
            [
                Delete(CONTROLLER),
                Create(CONTROLLER, ControllerNode(2, 0, 0).encode()),
            ]
        )
        metadata = MetadataCache(plane.store, BrokerConfig({"node.id": "2"}))
        await metadata.start()
        election = ControllerElection(plane.store, metadata, 2, ManualClock())
        election.broker_epoch = 1
        await expire_previous_registration(plane.store, 2, "d")
        loop = ControllerLoop(plane.store, metadata, election, BrokerConfig())
        await loop.start()
        assert election.is_held
        await loop.stop()
        await metadata.close()
