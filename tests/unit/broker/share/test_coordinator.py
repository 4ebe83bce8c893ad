"""The coordinator of share groups: what exists, and what survives it."""

from collections.abc import Callable
from typing import Any

import pytest

from qbus.broker.metadata.image import (
    BrokerInfo,
    BrokersChanged,
    PartitionInfo,
    PartitionsChanged,
    Topic,
    TopicCreated,
)
from qbus.broker.share import MemberHeartbeat, ShareCoordinator, ShareGroupState
from qbus.clock import ManualClock
from qbus.config import BrokerConfig, ShareGroupConfig
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Delete, SessionState, StoreUnavailable
from tests.unit.broker.group.shell import DirectStore

PARTITION = PartitionInfo(1, 0, (1,), (1,))


class Metadata:
    """Topics and brokers as a test sets them."""

    def __init__(self, config: BrokerConfig) -> None:
        self.topics = {"t": Topic("t", b"t" * 16, (PARTITION, PARTITION))}
        self.brokers = {1: BrokerInfo(1, "host", 9092)}
        self.own: dict[str, str] = {}
        self._config = config
        self.subscribers: list[Callable[..., Any]] = []

    def subscribe(self, subscriber: Callable[..., Any]) -> None:
        self.subscribers.append(subscriber)

    def group_config(self, group: str) -> ShareGroupConfig:
        return ShareGroupConfig(self._config, self.own)


class Scene:
    """A coordinator over a store, and its clock."""

    def __init__(self, store: DirectStore | None = None) -> None:
        self.store = store or DirectStore()
        self.config = BrokerConfig({"node.id": 1})
        self.metadata = Metadata(self.config)
        self.clock = ManualClock()
        self.consumer_groups: set[str] = set()

        async def is_consumer_group(name: str) -> bool:
            return name in self.consumer_groups

        self.shares = ShareCoordinator(
            self.store, self.metadata, self.config, self.clock, is_consumer_group
        )

    async def join(self, member: str = "m", group: str = "g") -> int:
        result, _ = await self.shares.heartbeat(group, MemberHeartbeat(member, 0, topics=("t",)))
        assert result.assignment is not None
        return result.epoch

    async def beat(self, epoch: int, member: str = "m", group: str = "g") -> Any:
        return (await self.shares.heartbeat(group, MemberHeartbeat(member, epoch)))[0]


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def refusal(outcome: Any) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        await outcome
    return refused.value.code


async def test_a_group_exists_when_its_first_member_joins(scene: Scene) -> None:
    assert not await scene.shares.exists("g")
    await scene.join()
    assert await scene.shares.exists("g")
    assert scene.store.data("/share_groups/g") == b'{"version":1,"epoch":0}'
    assert await scene.shares.groups() == [("g", ShareGroupState.STABLE)]
    described = await scene.shares.describe("g")
    assert described is not None
    assert (described.epoch, described.assignment_epoch) == (1, 1)
    (member,) = described.members
    assert (member.member_id, member.topics, len(member.assignment)) == ("m", ("t",), 2)


async def test_what_is_no_group_is_not_made_one_by_asking(scene: Scene) -> None:
    assert await scene.shares.describe("g") is None
    assert await refusal(scene.beat(3)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await scene.shares.groups() == []


async def test_many_unknown_groups_are_found_by_one_look_at_the_store(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.join(group="a/b")
    names = [f"unknown-{number}" for number in range(1000)]
    monkeypatch.setattr(scene.store, "get", None)  # no group is looked for alone

    assert await scene.shares.unknown(["a/b", "", *names]) == set(names)

    successor = Scene(DirectStore(scene.store.database))
    assert await successor.shares.unknown(["a/b", *names]) == set(names)
    successor.store.enter(SessionState.SUSPENDED)
    assert await successor.shares.unknown(names) == frozenset()


async def test_a_name_of_any_characters(scene: Scene) -> None:
    await scene.join(group="a/b ü")
    assert await scene.shares.groups() == [("a/b ü", ShareGroupState.STABLE)]


async def test_a_consumer_group_is_no_share_group(scene: Scene) -> None:
    scene.consumer_groups.add("g")
    assert await refusal(scene.join()) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_another_broker_takes_over(scene: Scene) -> None:
    epoch = await scene.join()
    await scene.shares.sweep()
    other = Scene(DirectStore(scene.store.database))
    assert await other.shares.groups() == [("g", ShareGroupState.EMPTY)]
    assert await refusal(other.beat(epoch)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await other.join() > epoch


async def test_groups_of_other_brokers(scene: Scene) -> None:
    names = [f"g{number}" for number in range(20)]
    for name in names:
        await scene.join(group=name)
    scene.metadata.brokers[2] = BrokerInfo(2, "other", 9092)
    scene.shares.follow([BrokersChanged()])
    kept = {name for name, _ in await scene.shares.groups()}
    assert 0 < len(kept) < 20
    assert scene.shares.states() == {ShareGroupState.STABLE: len(kept)}
    gone = next(name for name in names if name not in kept)
    assert await refusal(scene.beat(1, group=gone)) is ErrorCode.NOT_COORDINATOR
    assert await refusal(scene.shares.exists(gone)) is ErrorCode.NOT_COORDINATOR


async def test_a_silent_member_is_removed_and_the_epoch_stored(scene: Scene) -> None:
    epoch = await scene.join()
    scene.clock.advance(44.0)
    await scene.shares.sweep()
    await scene.beat(epoch)
    scene.clock.advance(45.0)
    await scene.shares.sweep()
    assert await scene.shares.groups() == [("g", ShareGroupState.EMPTY)]
    assert scene.store.data("/share_groups/g") == b'{"version":1,"epoch":2}'


async def test_the_session_may_be_longer_in_a_group(scene: Scene) -> None:
    scene.metadata.own["share.session.timeout.ms"] = "60000"
    await scene.join()
    scene.clock.advance(59.0)
    await scene.shares.sweep()
    assert scene.shares.members == 1


async def test_topics_that_grow_are_assigned(scene: Scene) -> None:
    epoch = await scene.join()
    before = scene.metadata.topics["t"]
    grown = scene.metadata.topics["t"] = Topic("t", b"t" * 16, (PARTITION,) * 3)
    scene.shares.follow([PartitionsChanged(grown, before)])
    assert len((await scene.beat(epoch)).assignment) == 3


async def test_other_changes_of_topics_change_nothing(scene: Scene) -> None:
    epoch = await scene.join()
    topic = scene.metadata.topics["t"]
    scene.shares.follow([PartitionsChanged(topic, topic), TopicCreated(Topic("u", b"u" * 16, ()))])
    assert await scene.beat(epoch) == (epoch, None)


async def test_a_group_without_members_is_deleted(scene: Scene) -> None:
    await scene.join()
    assert await refusal(scene.shares.delete("g")) is ErrorCode.NON_EMPTY_GROUP
    await scene.beat(-1)
    await scene.shares.delete("g")
    assert scene.store.data("/share_groups/g") is None
    assert not await scene.shares.exists("g")
    assert await refusal(scene.shares.delete("g")) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_may_exist_without_ever_having_had_members(scene: Scene) -> None:
    await scene.shares.ensure("jobs")
    await scene.shares.ensure("jobs")
    assert await scene.shares.groups() == [("jobs", ShareGroupState.EMPTY)]


async def test_without_the_store_members_stay_and_none_joins(scene: Scene) -> None:
    epoch = await scene.join()
    scene.store.enter(SessionState.SUSPENDED)
    assert await scene.beat(epoch) == (epoch, None)
    assert await refusal(scene.join(group="new")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await refusal(scene.shares.groups()) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_the_end_of_the_session_ends_all(scene: Scene) -> None:
    await scene.join()
    scene.store.enter(SessionState.LOST)
    assert scene.shares.members == 0


async def test_a_store_that_fails_is_tried_again(scene: Scene) -> None:
    scene.store.failures.append(StoreUnavailable("gone"))
    assert await refusal(scene.join()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await scene.join() == 1
    scene.store.failures.append(StoreUnavailable("gone"))
    await scene.shares.sweep()
    await scene.shares.sweep()
    assert scene.store.data("/share_groups/g") == b'{"version":1,"epoch":1}'


async def test_a_group_that_was_deleted_by_hand_is_forgotten(scene: Scene) -> None:
    epoch = await scene.join()
    await scene.store.transaction([Delete("/share_groups/g")])
    await scene.shares.sweep()
    assert await refusal(scene.beat(epoch)) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_name_is_needed(scene: Scene) -> None:
    assert await refusal(scene.join(group="")) is ErrorCode.INVALID_GROUP_ID
