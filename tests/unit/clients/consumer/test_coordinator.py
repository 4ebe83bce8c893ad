"""A consumer in a group: it shares the partitions, follows every rebalance, commits, and leaves."""

import asyncio
import re
from typing import Any

import pytest

from qbus.clients import Consumer, OffsetAndMetadata, TopicPartition
from qbus.errors import ApiError, ConfigError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.heartbeat import HeartbeatResponse
from qbus.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tests.support.fake_broker import FakeBroker
from tests.support.polling import flat
from tests.unit.clients.consumer.fake_group import FakeGroup
from tests.unit.clients.consumer.test_consumer import numbers, store


def member(broker: FakeBroker, **options: Any) -> Consumer:
    defaults: dict[str, Any] = {
        "group": "g",
        "offset_reset": "earliest",
        "heartbeat_interval_ms": 10,
        "fetch_max_wait_ms": 20,
    }
    consumer = Consumer(broker.bootstrap, **defaults | options)
    consumer.subscribe(["t"])
    return consumer


async def polled(consumers: list[Consumer], wanted: list[list[int]]) -> None:
    """Let all poll until each has the partitions ``wanted`` of it."""
    for _ in range(500):
        await asyncio.gather(*(consumer.poll(0.02) for consumer in consumers))
        if [[p.partition for p in consumer.assignment] for consumer in consumers] == wanted:
            return
    raise AssertionError([consumer.assignment for consumer in consumers])


async def test_a_single_member_reads_everything_from_the_committed_offsets() -> None:
    async with FakeBroker({"t": 2}) as broker:
        group = FakeGroup(broker)
        store(broker, numbers(5), 1)
        broker.committed["g", "t", 1] = 3
        async with member(broker) as consumer:
            found: list[bytes | None] = []
            while len(found) < 2:
                found += [record.value for record in flat(await consumer.poll(0.05))]
            assert found == [b"3", b"4"]
            assert [p.partition for p in consumer.assignment] == [0, 1]
        assert group.left == ["m1"]
        assert broker.committed["g", "t", 1] == 5


async def test_members_share_and_take_over() -> None:
    async with FakeBroker({"t": 4}) as broker:
        group = FakeGroup(broker)
        first, second = member(broker), member(broker)
        await polled([first], [[0, 1, 2, 3]])
        await polled([first, second], [[0, 1], [2, 3]])
        await second.close()
        group.generation += 1  # as a coordinator does when a member leaves
        await polled([first], [[0, 1, 2, 3]])
        await first.close()


async def test_returned_records_are_committed_before_a_revocation() -> None:
    async with FakeBroker({"t": 2}) as broker:
        FakeGroup(broker)
        store(broker, numbers(5), 1)
        first, second = member(broker), member(broker)
        while len(flat(await first.poll(0.05))) < 5:
            pass
        await polled([first, second], [[0], [1]])
        assert broker.committed["g", "t", 1] == 5
        assert second.position("t", 1) in {None, 5}
        await asyncio.gather(first.close(), second.close())


async def test_an_expelled_member_joins_again_and_its_commit_is_refused() -> None:
    async with FakeBroker({"t": 1}) as broker:
        group = FakeGroup(broker)
        store(broker, numbers(3))
        async with member(broker, auto_commit=False, heartbeat_interval_ms=40_000) as consumer:
            while not await consumer.poll(0.05):
                pass
            group.expel("m1")
            with pytest.raises(ApiError) as caught:
                await consumer.commit()
            assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID
            while not await consumer.poll(0.05):
                pass
            assert list(group.members) == ["m2"]
            await consumer.commit()
        assert broker.committed["g", "t", 0] == 3


async def test_heartbeats_notice_an_expulsion() -> None:
    async with FakeBroker({"t": 1}) as broker:
        group = FakeGroup(broker)
        async with member(broker) as consumer:
            await polled([consumer], [[0]])
            group.expel("m1")
            while list(group.members) != ["m2"]:
                await consumer.poll(0.02)


async def test_a_fenced_member_stops() -> None:
    async with FakeBroker({"t": 1}) as broker:
        FakeGroup(broker)
        consumer = member(broker, instance_id="i")
        await polled([consumer], [[0]])
        broker.handlers[ApiKey.HEARTBEAT] = lambda _: HeartbeatResponse(
            error_code=ErrorCode.FENCED_INSTANCE_ID
        )
        with pytest.raises(ApiError) as caught:
            await polled([consumer], [[1]])
        assert caught.value.code is ErrorCode.FENCED_INSTANCE_ID
        await consumer.close()


async def test_a_static_member_does_not_leave() -> None:
    async with FakeBroker({"t": 1}) as broker:
        group = FakeGroup(broker)
        async with member(broker, instance_id="i") as consumer:
            await polled([consumer], [[0]])
            assert broker.asked(ApiKey.JOIN_GROUP)[-1].group_instance_id == "i"
        assert group.left == []


async def test_a_coordinator_that_moved_is_looked_up_again() -> None:
    async with FakeBroker({"t": 1}) as broker:
        group = FakeGroup(broker)
        honest, refusals = group.heartbeat, [ErrorCode.NOT_COORDINATOR]

        def heartbeat(request: Any) -> HeartbeatResponse:
            if refusals:
                return HeartbeatResponse(error_code=refusals.pop())
            return honest(request)

        broker.handlers[ApiKey.HEARTBEAT] = heartbeat
        async with member(broker) as consumer:
            await polled([consumer], [[0]])
            while len(broker.asked(ApiKey.FIND_COORDINATOR)) < 2:
                await consumer.poll(0.02)
            assert group.generation == 1, "no rebalance"


async def test_new_partitions_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbus.clients.consumer.coordinator._REFRESH_INTERVAL", 0.02)
    async with FakeBroker({"t": 1}) as broker:
        FakeGroup(broker)
        async with member(broker) as consumer:
            await polled([consumer], [[0]])
            broker.topics["t"] = 3
            await polled([consumer], [[0, 1, 2]])


async def test_what_is_not_assigned_is_not_committed() -> None:
    async with FakeBroker({"t": 1}) as broker:
        FakeGroup(broker)
        async with member(broker) as consumer:
            await polled([consumer], [[0]])
            with pytest.raises(ApiError) as caught:
                await consumer.commit({TopicPartition("t", 9): OffsetAndMetadata(1)})
            assert caught.value.code is ErrorCode.ILLEGAL_GENERATION
        assert ("g", "t", 9) not in broker.committed


async def test_callbacks_are_called_in_polls_and_may_seek_and_commit() -> None:
    told: list[tuple[str, list[int], int | None]] = []

    def tell(kind: str, partitions: list[TopicPartition]) -> None:
        told.append((kind, [p.partition for p in partitions], consumer.position("t", 0)))

    def on_assigned(partitions: list[TopicPartition]) -> None:
        tell("assigned", partitions)
        consumer.seek("t", 0, 3)

    async def on_revoked(partitions: list[TopicPartition]) -> None:
        tell("revoked", partitions)
        await consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(4, "mine")})

    async with FakeBroker({"t": 1}) as broker:
        FakeGroup(broker)
        store(broker, numbers(5))
        consumer = member(broker, auto_commit=False, on_assigned=on_assigned, on_revoked=on_revoked)
        found: list[bytes | None] = []
        while len(found) < 2:
            found += [record.value for record in flat(await consumer.poll(0.05))]
        assert found == [b"3", b"4"]
        await consumer.close()
        assert told == [("assigned", [0], None), ("revoked", [0], 5)]
        assert broker.committed["g", "t", 0] == 4


async def test_who_seeks_while_the_committed_offset_is_looked_up_reads_from_there() -> None:
    async with FakeBroker({"t": 1}) as broker:
        FakeGroup(broker)
        store(broker, numbers(5))
        broker.committed["g", "t", 0] = 4
        is_asked, may_answer = asyncio.Event(), asyncio.Event()

        async def offset_fetch(request: OffsetFetchRequest) -> OffsetFetchResponse:
            is_asked.set()
            await may_answer.wait()
            return broker.offset_fetch(request)

        broker.handlers[ApiKey.OFFSET_FETCH] = offset_fetch
        async with member(broker) as consumer:
            while not is_asked.is_set():
                await consumer.poll(0.01)
            consumer.seek_to_beginning()
            may_answer.set()
            found: list[bytes | None] = []
            while len(found) < 5:
                found += [record.value for record in flat(await consumer.poll(0.05))]
            assert found == [b"%d" % number for number in range(5)]


async def test_a_callback_that_fails_is_heard_of() -> None:
    def on_assigned(_: list[TopicPartition]) -> None:
        raise LookupError("mine")

    async with FakeBroker({"t": 1}) as broker:
        FakeGroup(broker)
        async with member(broker, on_assigned=on_assigned) as consumer:
            with pytest.raises(LookupError, match="mine"):
                await polled([consumer], [[7]])
            await polled([consumer], [[0]])


async def test_a_poll_keeps_its_time_out_during_a_rebalance() -> None:
    async with FakeBroker({"t": 1}) as broker:
        FakeGroup(broker)
        broker.handlers[ApiKey.JOIN_GROUP] = lambda _: asyncio.sleep(60)
        consumer = member(broker)
        async with asyncio.timeout(5):
            assert await consumer.poll(0.05) == []
            await consumer.close()


async def test_offsets_are_committed_at_intervals() -> None:
    async with FakeBroker({"t": 1}) as broker:
        FakeGroup(broker)
        store(broker, numbers(3))
        async with member(broker, auto_commit_interval_ms=10) as consumer:
            while broker.committed.get(("g", "t", 0)) != 3:
                await consumer.poll(0.02)


async def test_a_pattern_finds_topics() -> None:
    async with FakeBroker({"news-a": 1, "news-b": 1, "old-news-c": 1}) as broker:
        FakeGroup(broker)
        consumer = member(broker)
        consumer.subscribe(re.compile("news-."))
        await polled([consumer], [[0, 0]])
        assert [p.topic for p in consumer.assignment] == ["news-a", "news-b"]
        await consumer.close()


async def test_without_a_group_a_pattern_reads_all_that_matches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qbus.clients.consumer.coordinator._REFRESH_INTERVAL", 0.02)
    async with FakeBroker({"news-a": 1}) as broker, Consumer(broker.bootstrap) as consumer:
        consumer.subscribe(re.compile("news-."))
        await polled([consumer], [[0]])
        broker.topics["news-b"] = 2
        await polled([consumer], [[0, 0, 1]])
        del broker.topics["news-a"]
        await polled([consumer], [[0, 1]])


async def test_who_unsubscribes_leaves_and_may_come_back() -> None:
    revoked: list[TopicPartition] = []
    async with FakeBroker({"t": 1}) as broker:
        group = FakeGroup(broker)
        store(broker, numbers(3))
        async with member(broker, on_revoked=revoked.extend) as consumer:
            while not await consumer.poll(0.05):
                pass
            await consumer.unsubscribe()
            assert (consumer.assignment, group.left) == ([], ["m1"])
            assert revoked == [TopicPartition("t", 0)]
            assert broker.committed["g", "t", 0] == 3
            consumer.subscribe(["t"])
            await polled([consumer], [[0]])


async def test_what_a_member_says_when_it_joins() -> None:
    async with FakeBroker({"t": 1}) as broker:
        FakeGroup(broker)
        async with member(broker, session_timeout_ms=7_000, max_poll_interval_ms=9_000) as consumer:
            await polled([consumer], [[0]])
        request = broker.asked(ApiKey.JOIN_GROUP)[-1]
        assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (7_000, 9_000)
        names = [protocol.name for protocol in request.protocols]
        assert names == ["range", "roundrobin", "cooperative-sticky"]


@pytest.mark.parametrize("assignors", [["fair"], [], ["range", "range"]])
def test_assignors_that_make_no_sense(assignors: list[str]) -> None:
    with pytest.raises(ConfigError, match="assignor"):
        Consumer("127.0.0.1:1", group="g", assignors=assignors)


async def test_one_string_is_not_a_list_of_topics() -> None:
    async with Consumer("127.0.0.1:1", group="g") as consumer:
        with pytest.raises(ConfigError, match="one string"):
            consumer.subscribe("t")


@pytest.mark.parametrize(
    "options",
    [
        {"heartbeat_interval_ms": 6_000, "session_timeout_ms": 6_000},
        {"max_poll_interval_ms": 0},
        {"rebalance_timeout_ms": -1},
        {"instance_id": ""},
    ],
)
def test_options_that_cannot_work(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Consumer("127.0.0.1:1", group="g", **options)


async def _stalled(_: object) -> Any:
    await asyncio.sleep(3600)


async def test_iterating_that_ends_before_the_group_formed_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeBroker({"t": 1}) as broker:
        FakeGroup(broker)
        broker.handlers[ApiKey.JOIN_GROUP] = _stalled
        store(broker, numbers(3))
        async with member(broker, consumer_timeout_ms=50) as consumer:
            assert [record async for record in consumer] == []
            assert [record async for record in consumer] == []
    (said,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert said.startswith("consumer_timeout_ms=50 ended before group g had assigned partitions")
    assert "group.initial.rebalance.delay.ms" in said


async def test_iterating_that_ends_at_the_end_of_the_log_says_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeBroker({"t": 1}) as broker:
        FakeGroup(broker)
        store(broker, numbers(3))
        async with member(broker, consumer_timeout_ms=500) as consumer:
            assert [record.value async for record in consumer] == [b"0", b"1", b"2"]
    assert caplog.messages == []
