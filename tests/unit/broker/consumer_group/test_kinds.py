"""Groups in their registry: stored, taken over, and changed from one protocol to the other."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qbus.broker.consumer_group import ConsumerGroup, ConsumerGroups, Partitions
from qbus.broker.group import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    Group,
    GroupCoordinator,
    GroupState,
)
from qbus.broker.group.requests import GroupProtocol, Leave, Leaver
from qbus.broker.metadata.image import PartitionsChanged, TopicCreated, TopicDeleted
from qbus.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from qbus.errors import ErrorCode
from qbus.metadata import SessionState, StoreUnavailable
from qbus.names import TopicPartition
from tests.unit.broker.group import shell
from tests.unit.broker.group.scene import make_join
from tests.unit.broker.group.shell import at, settle

T = b"t" * 16
NOTHING: Partitions = frozenset()
ALL = frozenset((T, index) for index in range(4))
SUBSCRIBED: dict[str, Any] = {"topics": ("t",), "rebalance_timeout_ms": 60_000, "owned": NOTHING}
COOPERATIVE = (GroupProtocol("cooperative-sticky", encode_subscription(Subscription(("t",)))),)


class Shell(shell.Shell):
    """A broker with groups of both kinds, and a topic of four partitions."""

    def __init__(self, beside: "Shell | None" = None, /, **config: object) -> None:
        super().__init__(beside, **config)
        self.metadata.add("t", 4, T)

    def _coordinator(self) -> Any:
        return GroupCoordinator(
            self.store,
            self.metadata,
            self.config,
            self.clock,
            timers=self.timers,
            kinds=ConsumerGroups(self.config, self.metadata),
        )

    async def beat(
        self, member_id: str, epoch: int, group_id: str = "g", **said: Any
    ) -> ConsumerHeartbeatResult:
        request = ConsumerHeartbeat(member_id, epoch, **said)
        if request.pattern:  # a thread finds its topics
            return await self.groups.consumer_heartbeat(group_id, request)
        result = await self.soon(self.groups.consumer_heartbeat(group_id, request))
        answer: ConsumerHeartbeatResult = await result
        return answer

    async def enter(self, member_id: str, **said: Any) -> ConsumerHeartbeatResult:
        return await self.beat(member_id, 0, **(SUBSCRIBED | said))

    async def kind(self) -> str:
        group = await self.groups.describe("g")
        assert group is not None
        return type(group).__name__

    async def classic(self, *member_ids: str) -> None:
        """A stable classic group, in which the first member has all four partitions."""
        joins = [
            await self.join("g", new_member_id=name, protocols=COOPERATIVE, needs_known_id=False)
            for name in member_ids
        ]
        await self.timers.advance(6)
        everything = encode_assignment([TopicPartition("t", index) for index in range(4)])
        for join in joins:
            joined = await join
            sync = await self.sync(
                "g",
                joined.member_id,
                joined.generation,
                protocol="cooperative-sticky",
                assignments={member_ids[0]: everything},
            )
            assert (await sync).error is ErrorCode.NONE


@pytest.fixture
def scene() -> Shell:
    return Shell()


async def test_a_group_is_stored_before_its_first_member_is_answered(scene: Shell) -> None:
    request = ConsumerHeartbeat("a", 0, **SUBSCRIBED)
    scene.store.gate.clear()
    answer = await scene.soon(scene.groups.consumer_heartbeat("g", request))
    assert not answer.done()
    scene.store.gate.set()
    assert (await answer).assignment == ALL
    assert scene.store.data("/consumers/g/consumer") is not None
    assert scene.store.data("/consumers/g/consumer/a") is not None


async def test_the_next_coordinator_knows_members_and_what_they_have(scene: Shell) -> None:
    await scene.enter("a")
    scene.restart()
    assert await scene.kind() == "ConsumerGroup"
    result = await scene.beat("a", 1)
    assert (result.error, result.assignment) == (ErrorCode.NONE, ALL)


async def test_members_that_died_with_the_coordinator_are_missed(scene: Shell) -> None:
    await scene.enter("a")
    scene.restart()
    await scene.groups.start()
    await scene.timers.advance(46)
    group = await scene.groups.describe("g")
    assert group is not None
    assert group.state is GroupState.EMPTY
    assert scene.store.data("/consumers/g/consumer/a") is None
    await scene.groups.close()


async def test_a_former_coordinator_stores_nothing_and_tells_nobody_anything(
    scene: Shell,
) -> None:
    await scene.enter("a")
    other = Shell(scene)
    await other.beat("a", 1)
    assert (await scene.enter("b")).error is ErrorCode.NOT_COORDINATOR
    assert scene.store.data("/consumers/g/consumer/b") is None


async def test_a_failed_write_is_told_and_the_group_loaded_anew(scene: Shell) -> None:
    await scene.enter("a")
    scene.store.failures.append(StoreUnavailable("gone"))
    assert (await scene.enter("b")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await scene.beat("a", 1)).error is ErrorCode.NONE
    assert (await scene.beat("b", 1)).error is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_that_says_too_much_is_refused_alone(scene: Shell) -> None:
    await scene.enter("a")
    refused = await scene.enter("b", topics=tuple(f"{n:0200d}" for n in range(3_000)))
    assert refused.error is ErrorCode.INVALID_REQUEST
    assert refused.message is not None
    assert "subscribe to fewer topics" in refused.message
    assert (await scene.beat("a", 1)).error is ErrorCode.NONE


async def test_who_makes_a_group_too_large_is_told_that_and_others_go_on(scene: Shell) -> None:
    await scene.enter("a")
    scene.store.max_bytes = 2_000
    large = tuple(f"{number:0100d}" for number in range(30))
    refused = await scene.enter("b", topics=large)
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    scene.store.max_bytes = 1 << 20
    assert (await scene.beat("a", 1)).error is ErrorCode.NONE
    assert (await scene.beat("b", 1)).error is ErrorCode.UNKNOWN_MEMBER_ID


async def test_heartbeats_go_on_while_the_store_elects(scene: Shell) -> None:
    await scene.enter("a")
    await scene.beat("a", 1)
    scene.store.enter(SessionState.SUSPENDED)
    assert (await scene.beat("a", 1)).error is ErrorCode.NONE


async def test_topics_that_grow_or_come_are_assigned(scene: Shell) -> None:
    await scene.enter("a", topics=("t", "u"))
    await scene.timers.advance(1)
    before = scene.metadata.topics["t"]
    grown = scene.metadata.add("t", 5, T)
    await scene.metadata.publish(PartitionsChanged(grown, before))
    created = scene.metadata.add("u", 1, b"u" * 16)
    await scene.metadata.publish(TopicCreated(created))
    await scene.timers.advance(1)
    result = await scene.beat("a", 1)
    assert result.assignment == ALL | {(T, 4), (b"u" * 16, 0)}


async def test_a_group_that_was_never_joined_is_not_made(scene: Shell) -> None:
    assert (await scene.beat("a", 1)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert (await scene.beat("a", -1)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.store.data("/consumers/g") is None
    assert (await scene.beat("a", 0, "")).error is ErrorCode.INVALID_GROUP_ID


async def test_offsets_are_the_groups_whatever_its_protocol(scene: Shell) -> None:
    await scene.groups.commit("g", {("t", 0): at(5, T)})
    await scene.enter("a")
    assert await scene.offset("g", "t", 0) == 5
    await scene.groups.commit("g", {("t", 0): at(7, T)}, member_id="a", generation=1)
    with pytest.raises(Exception, match="STALE_MEMBER_EPOCH"):
        await scene.groups.commit("g", {("t", 0): at(8, T)}, member_id="a", generation=2)
    scene.restart()
    assert (await scene.groups.offsets("g", "a", 1))["t"][0].offset == 7
    with pytest.raises(Exception, match="STALE_MEMBER_EPOCH"):
        await scene.groups.offsets("g", "a", 0)


async def test_offsets_of_topics_that_members_read_are_not_deleted(scene: Shell) -> None:
    await scene.groups.commit("g", {("t", 0): at(5, T)})
    await scene.enter("a")
    outcome = await scene.groups.delete_offsets("g", [("t", 0)])
    assert outcome == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


async def test_it_is_deleted_when_nobody_is_in_it(scene: Shell) -> None:
    await scene.enter("a")
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        await scene.groups.delete("g")
    await scene.beat("a", -1)
    await scene.groups.delete("g")
    assert scene.store.data("/consumers/g/consumer") is None
    assert scene.store.data("/consumers/g") is None


# From one protocol to the other


async def test_a_group_without_members_takes_the_protocol_of_whoever_joins(scene: Shell) -> None:
    await scene.classic("old")
    await scene.soon(scene.groups.leave("g", Leave((Leaver("old", None),))))
    assert (await scene.enter("a")).assignment == ALL
    assert await scene.kind() == "ConsumerGroup"
    await scene.beat("a", -1, owned=NOTHING)
    await scene.classic("old")
    assert await scene.kind() == "Group"
    assert scene.store.data("/consumers/g/consumer") is None


async def test_a_joining_member_upgrades_a_group_and_the_others_stay_in_it(scene: Shell) -> None:
    await scene.classic("old")
    joined = await scene.enter("a")
    assert (joined.error, joined.assignment) == (ErrorCode.NONE, NOTHING)
    group = await scene.groups.describe("g")
    assert isinstance(group, ConsumerGroup)
    assert {one.member_id for one in group.members} == {"old", "a"}
    assert await scene.heartbeat("g", "old", 1) is ErrorCode.REBALANCE_IN_PROGRESS

    owned = tuple(TopicPartition("t", index) for index in range(4))
    for _ in range(2):  # once to learn what to give up, once to tell that it did
        metadata = encode_subscription(Subscription(("t",), owned))
        join = await scene.soon(
            scene.groups.join(
                "g",
                make_join("old", protocols=(GroupProtocol("cooperative-sticky", metadata),)),
            )
        )
        joined_again = await join
        assert joined_again.error is ErrorCode.NONE
        sync = await scene.sync("g", "old", joined_again.generation, protocol="cooperative-sticky")
        owned = decode_assignment((await sync).assignment)
    assert len(owned) == 2
    assert len((await scene.beat("a", joined.epoch)).assignment or ()) == 2
    assert await scene.heartbeat("g", "old", joined_again.generation) is ErrorCode.NONE


async def test_what_a_member_of_an_upgraded_group_may_not_have_given_up_yet_is_not_free(
    scene: Shell,
) -> None:
    """A cooperative one joins again when it has: until then it may be reading that."""

    def owning(count: int) -> tuple[GroupProtocol, ...]:
        owned = tuple(TopicPartition("t", index) for index in range(count))
        metadata = encode_subscription(Subscription(("t",), owned))
        return (GroupProtocol("cooperative-sticky", metadata),)

    joining = await scene.join("g", new_member_id="old", needs_known_id=False, protocols=owning(4))
    await scene.timers.advance(6)
    generation = (await joining).generation
    half = encode_assignment(TopicPartition("t", index) for index in range(2))
    synced = await scene.sync(
        "g", "old", generation, protocol="cooperative-sticky", assignments={"old": half}
    )
    assert (await synced).error is ErrorCode.NONE
    joined = await scene.enter("a")
    assert (joined.error, joined.assignment) == (ErrorCode.NONE, NOTHING)
    assert await scene.heartbeat("g", "old", generation) is ErrorCode.REBALANCE_IN_PROGRESS
    again = await scene.soon(scene.groups.join("g", make_join("old", protocols=owning(2))))
    assert (await again).error is ErrorCode.NONE
    assert len((await scene.beat("a", joined.epoch)).assignment or ()) == 2


async def test_what_is_parked_when_a_group_is_upgraded_has_to_come_again(scene: Shell) -> None:
    await scene.classic("old")
    parked = await scene.join("g", new_member_id="b", protocols=COOPERATIVE, needs_known_id=False)
    assert not parked.done()
    assert (await scene.enter("a")).error is ErrorCode.NONE
    assert (await parked).error is ErrorCode.REBALANCE_IN_PROGRESS


async def test_the_last_member_of_the_new_protocol_downgrades_a_group_when_it_leaves(
    scene: Shell,
) -> None:
    await scene.classic("old")
    await scene.enter("a")
    await scene.beat("a", -1)
    group = await scene.groups.describe("g")
    assert isinstance(group, Group)
    assert [one.member_id for one in group.members] == ["old"]
    assert group.state is GroupState.PREPARING
    assert await scene.heartbeat("g", "old", group.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    join = await scene.soon(scene.groups.join("g", make_join("old", protocols=COOPERATIVE)))
    assert (await join).leader == "old"
    await settle()
    assert scene.store.data("/consumers/g/consumer") is None
    assert scene.store.data("/consumers/g/ids/old") is not None


async def test_one_that_dies_downgrades_it_too(scene: Shell) -> None:
    await scene.classic("old")
    await scene.enter("a")
    for _ in range(10):
        await scene.timers.advance(5)
        group = await scene.groups.describe("g")
        if isinstance(group, Group):
            break
        await scene.heartbeat("g", "old", 1)
    assert isinstance(group, Group)


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
async def test_where_upgrades_are_not_allowed_the_new_member_is_refused(policy: str) -> None:
    scene = Shell(group_consumer_migration_policy=policy)
    await scene.classic("old")
    assert (await scene.enter("a")).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert await scene.heartbeat("g", "old", 1) is ErrorCode.NONE


async def test_where_downgrades_are_not_allowed_the_group_stays() -> None:
    scene = Shell(group_consumer_migration_policy="upgrade")
    await scene.classic("old")
    await scene.enter("a")
    await scene.beat("a", -1)
    assert await scene.kind() == "ConsumerGroup"


async def test_a_group_of_another_type_is_not_upgraded(scene: Shell) -> None:
    await scene.settle_group("g", "w", protocol_type="connect")
    refused = await scene.enter("a")
    assert refused.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.message
    assert "connect" in refused.message


async def test_one_with_metadata_that_nobody_can_read_is_not_upgraded(scene: Shell) -> None:
    await scene.settle_group("g", "w", protocols=(GroupProtocol("range", b"?"),))
    assert (await scene.enter("a")).error is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_of_a_thousand_members_is_stored_and_taken_over() -> None:
    scene = Shell(group_consumer_max_size=1000)
    scene.metadata.add("t", 3000, T)
    requests = [ConsumerHeartbeat(f"m{n}", 0, **SUBSCRIBED) for n in range(1000)]
    joins = [asyncio.ensure_future(scene.groups.consumer_heartbeat("g", one)) for one in requests]
    await asyncio.gather(*joins)
    await scene.timers.advance(2)
    for _ in range(3):
        group = await scene.groups.describe("g")
        assert isinstance(group, ConsumerGroup)
        for member in list(group.members):
            await scene.groups.consumer_heartbeat(
                "g", ConsumerHeartbeat(member.member_id, member.epoch, owned=member.assigned)
            )
    group = await scene.groups.describe("g")
    assert isinstance(group, ConsumerGroup)
    assert group.state is GroupState.STABLE
    assert {len(one.assigned) for one in group.members} == {3}
    scene.restart()
    group = await scene.groups.describe("g")
    assert isinstance(group, ConsumerGroup)
    assert group.state is GroupState.STABLE
    assert len({one for member in group.members for one in member.assigned}) == 3000


# Patterns


MATCHING: dict[str, Any] = {"topics": None, "pattern": "t.*"}


async def matching(scene: Shell) -> set[str]:
    group = await scene.groups.describe("g")
    assert isinstance(group, ConsumerGroup)
    return {name for member in group.members for name in member.matching}


async def test_topics_that_come_and_go_are_matched_in_the_background(scene: Shell) -> None:
    assert (await scene.enter("a", **MATCHING)).assignment == ALL
    new = scene.metadata.add("tb", 1, b"b" * 16), scene.metadata.add("u", 1, b"u" * 16)
    await scene.metadata.publish(*map(TopicCreated, new))
    await until(lambda: matching(scene), {"t", "tb"})
    await scene.metadata.publish(TopicDeleted(scene.metadata.topics.pop("t")))
    await until(lambda: matching(scene), {"tb"})


async def test_a_pattern_that_is_not_valid_changes_nothing(scene: Shell) -> None:
    refused = await scene.enter("a", pattern="(")
    assert refused.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.message
    assert "missing )" in refused.message
    joined = await scene.enter("a")
    refused = await scene.beat("a", joined.epoch, pattern="[")
    assert refused.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (await scene.beat("a", joined.epoch)).error is ErrorCode.NONE


async def test_a_group_that_is_loaded_knows_what_its_patterns_match(scene: Shell) -> None:
    joined = await scene.enter("a", **MATCHING)
    scene.restart()
    assert await matching(scene) == {"t"}
    beat = await scene.beat("a", joined.epoch, owned=ALL)
    assert (beat.error, beat.epoch) == (ErrorCode.NONE, joined.epoch)


async def test_a_stored_pattern_that_is_not_valid_any_more_matches_nothing_and_is_logged(
    scene: Shell, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await scene.enter("a", **MATCHING)
    scene.restart()
    monkeypatch.setattr("qbus.broker.regular_expression.MAX_LENGTH", 2)
    assert await matching(scene) == set()
    assert "'t.*' matches no topics" in caplog.text


async def until(look: Callable[[], Awaitable[object]], expected: object) -> None:
    async with asyncio.timeout(10):
        while await look() != expected:  # noqa: ASYNC110 - a group has no events
            await asyncio.sleep(0.01)
