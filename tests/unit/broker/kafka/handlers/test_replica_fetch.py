"""Fetch as a follower asks: what it is told, what it acknowledges, and who is turned away."""

import asyncio

import pytest

from qbus.broker.partition.partition import ACKS_ALL
from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from tests.support.data_plane import DataPlane, over_the_wire, values
from tests.support.following import (
    EPOCH,
    OTHER,
    THIRD,
    VERSION,
    Follower,
    at,
    lead,
    put,
    state,
)
from tests.support.logs import batch
from tests.support.waiting import eventually


class TestReading:
    async def test_a_follower_reads_what_is_not_acknowledged(self, plane: DataPlane) -> None:
        partition = await lead(plane)
        partition.append(batch(b"a", b"b"), ACKS_ALL)
        answer = await Follower(plane).fetch(at(0))
        assert values(answer[0].records) == [b"a", b"b"]
        assert answer[0].high_watermark == partition.high_watermark == 0

    async def test_what_all_in_sync_asked_beyond_is_acknowledged(self, plane: DataPlane) -> None:
        partition = await lead(plane)
        partition.append(batch(b"a", b"b"), ACKS_ALL)
        await Follower(plane, OTHER).fetch(at(2))
        assert partition.high_watermark == 0
        await Follower(plane, THIRD).fetch(at(1))
        assert partition.high_watermark == 1

    async def test_a_corrupt_or_foreign_offset_acknowledges_nothing(self, plane: DataPlane) -> None:
        partition = await lead(plane)
        partition.append(batch(b"a"), ACKS_ALL)
        for node in (OTHER, THIRD):
            answer = await Follower(plane, node).fetch(at(9))
            assert ErrorCode(answer[0].error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert partition.high_watermark == 0

    @pytest.mark.parametrize(
        ("known", "code"),
        [
            (-1, ErrorCode.FENCED_LEADER_EPOCH),
            (4, ErrorCode.FENCED_LEADER_EPOCH),
            (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ],
    )
    async def test_who_follows_another_epoch_acknowledges_nothing(
        self, plane: DataPlane, known: int, code: ErrorCode
    ) -> None:
        await put(plane, state(leader_epoch=5), qbus_durability="memory")
        partition = plane.partition("orders")
        partition.append(batch(b"a"), ACKS_ALL)
        for node in (OTHER, THIRD):
            answer = await Follower(plane, node).fetch(at(1, leader_epoch=known))
            assert ErrorCode(answer[0].error_code) is code
        assert partition.high_watermark == 0

    async def test_a_broker_that_holds_no_replica_acknowledges_nothing(
        self, plane: DataPlane
    ) -> None:
        replicas = (1, OTHER)
        await put(plane, state(replicas, replicas=replicas), qbus_durability="memory")
        partition = plane.partition("orders")
        partition.append(batch(b"a"), ACKS_ALL)
        await Follower(plane, THIRD).fetch(at(1))
        assert partition.high_watermark == 0


class TestSessions:
    async def test_only_what_is_new_is_told(self, plane: DataPlane) -> None:
        await put(plane, state(), state(), state(), qbus_durability="memory")
        follower = Follower(plane)
        first = await follower.fetch(at(0, 0), at(0, 1), at(0, 2))
        assert sorted(first) == [0, 1, 2]
        assert await follower.fetch() == {}
        plane.partition("orders", 1).append(batch(b"new"), 1)
        assert list(await follower.fetch()) == [1]

    async def test_a_follower_that_waits_is_answered_with_what_comes(
        self, plane: DataPlane
    ) -> None:
        partition = await lead(plane)
        follower = Follower(plane)
        await follower.fetch(at(0))
        waiting = asyncio.ensure_future(follower.fetch(wait_ms=60_000))
        await eventually(lambda: len(plane.replicas.purgatory.fetches) == 1)
        partition.append(batch(b"a"), 1)
        assert values((await waiting)[0].records) == [b"a"]

    async def test_the_high_watermark_follows_when_no_records_do(self, plane: DataPlane) -> None:
        partition = await lead(plane)
        partition.append(batch(b"a"), 1)
        follower, other = Follower(plane, OTHER), Follower(plane, THIRD)
        await follower.fetch(at(1))
        waiting = asyncio.ensure_future(follower.fetch(wait_ms=60_000))
        await other.fetch(at(1))
        answer = await waiting
        assert (answer[0].high_watermark, len(answer[0].records)) == (1, 0)

    async def test_a_request_that_comes_while_one_waits_gets_what_there_is(
        self, plane: DataPlane
    ) -> None:
        await put(plane, state(), state(), qbus_durability="memory")
        follower = Follower(plane)
        await follower.fetch(at(0, 0))
        plane.partition("orders", 1).append(batch(b"b"), 1)
        earlier = plane.begin(ApiKey.FETCH, VERSION, follower.request(wait_ms=60_000))
        follower.session_epoch += 1
        later = await follower.fetch(at(0, 1), wait_ms=60_000)
        assert values(later[1].records) == [b"b"]
        assert over_the_wire(ApiKey.FETCH, VERSION, await earlier).responses == []

    async def test_what_has_no_room_comes_next_time(self, plane: DataPlane) -> None:
        await put(plane, state(), state(), qbus_durability="memory")
        for index in (0, 1):
            plane.partition("orders", index).append(batch(b"x" * 100), 1)
        follower = Follower(plane)
        first = await follower.fetch(at(0, 0), at(0, 1), max_bytes=1)
        rest = await follower.fetch()
        assert [*first, *rest] == [0, 1]

    async def test_what_is_forgotten_is_told_no_more(self, plane: DataPlane) -> None:
        partition = await lead(plane)
        follower = Follower(plane)
        await follower.fetch(at(0))
        await follower.fetch(forgotten=(0,))
        partition.append(batch(b"a"), 1)
        assert await follower.fetch() == {}
        assert not partition.replica_watchers

    async def test_an_error_is_told_until_the_partition_is_forgotten(
        self, plane: DataPlane
    ) -> None:
        await lead(plane)
        follower = Follower(plane)
        await follower.fetch(at(0))
        await put(plane, state(leader=OTHER, leader_epoch=1, version=1))
        for _ in range(2):
            answer = await follower.fetch()
            assert ErrorCode(answer[0].error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer[0].current_leader.leader_id == OTHER
        assert await follower.fetch(forgotten=(0,)) == {}

    async def test_what_is_deleted_is_told_only_to_who_has_not_heard_of_it_later(
        self, plane: DataPlane
    ) -> None:
        """Followers know it from the metadata; telling hundreds of topics costs more than that."""
        await lead(plane)
        await put(plane, state(), topic="other")
        follower = Follower(plane)
        await follower.fetch(at(0))
        await plane.metadata.remove("orders")
        assert await follower.fetch(topic="other") == {}
        plane.replicas.isr_changes.check()  # after seconds
        answer = await follower.fetch(topic="other")
        assert ErrorCode(answer[0].error_code) is ErrorCode.UNKNOWN_TOPIC_ID

    async def test_what_is_not_known_here_is_told_at_once(self, plane: DataPlane) -> None:
        """It may be known in a moment: the follower asks again."""
        await lead(plane)
        follower = Follower(plane)
        await follower.fetch(at(0))
        request = follower.request(at(0))
        request.topics[0].topic_id = b"t" * 16
        response = await plane.call(ApiKey.FETCH, VERSION, request)
        error = response.responses[0].partitions[0].error_code
        assert ErrorCode(error) is ErrorCode.UNKNOWN_TOPIC_ID

    async def test_a_new_leader_elsewhere_answers_a_follower_that_waits(
        self, plane: DataPlane
    ) -> None:
        await lead(plane)
        follower = Follower(plane)
        await follower.fetch(at(0))
        waiting = asyncio.ensure_future(follower.fetch(wait_ms=60_000))
        await eventually(lambda: len(plane.replicas.purgatory.fetches) == 1)
        await put(plane, state(leader=OTHER, leader_epoch=1, version=1))
        answer = await waiting
        assert ErrorCode(answer[0].error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestTurnedAway:
    async def test_an_unknown_session_has_to_begin_anew(self, plane: DataPlane) -> None:
        await lead(plane)
        follower = Follower(plane)
        follower.session_id, follower.session_epoch = 77, 1
        response = await follower.ask(at(0))
        assert ErrorCode(response.error_code) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    async def test_a_request_that_is_out_of_turn_is_refused(self, plane: DataPlane) -> None:
        await lead(plane)
        follower = Follower(plane)
        await follower.fetch(at(0))
        follower.session_epoch = 5
        response = await follower.ask(at(0))
        assert ErrorCode(response.error_code) is ErrorCode.INVALID_FETCH_SESSION_EPOCH

    async def test_another_broker_cannot_go_on_in_a_session(self, plane: DataPlane) -> None:
        await lead(plane)
        follower, other = Follower(plane, OTHER), Follower(plane, THIRD)
        await follower.fetch(at(0))
        other.session_id, other.session_epoch = follower.session_id, 1
        response = await other.ask(at(0))
        assert ErrorCode(response.error_code) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    @pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1, -1])
    async def test_only_the_registration_that_is_known_counts(
        self, plane: DataPlane, epoch: int
    ) -> None:
        partition = await lead(plane)
        partition.append(batch(b"a"), 1)
        response = await Follower(plane, OTHER, epoch).ask(at(1))
        assert ErrorCode(response.error_code) is ErrorCode.STALE_BROKER_EPOCH
        followers = partition.followers
        assert followers is not None
        assert followers.end_offset(OTHER) == -1

    async def test_sessions_of_one_broker_are_bounded(self, plane: DataPlane) -> None:
        partition = await lead(plane)
        for _ in range(40):
            await Follower(plane).fetch(at(0))
        assert len(plane.replicas.sessions) == len(partition.replica_watchers) == 16

    async def test_a_request_without_a_session_leaves_nothing_behind(
        self, plane: DataPlane
    ) -> None:
        partition = await lead(plane)
        partition.append(batch(b"a"), 1)
        follower = Follower(plane)
        follower.session_epoch = -1
        answer = await follower.fetch(at(0))
        assert values(answer[0].records) == [b"a"]
        await eventually(lambda: not partition.replica_watchers)
        assert len(plane.replicas.sessions) == 0

    async def test_who_is_gone_or_silent_for_long_has_no_session(self, plane: DataPlane) -> None:
        partition = await lead(plane)
        await Follower(plane, OTHER).fetch(at(0))
        await Follower(plane, THIRD).fetch(at(0))
        del plane.metadata.brokers[OTHER]
        plane.replicas.isr_changes.check()
        assert [one.replica_id for one in plane.replicas.sessions] == [THIRD]
        plane.clock.advance(61)
        plane.replicas.isr_changes.check()
        assert not partition.replica_watchers
