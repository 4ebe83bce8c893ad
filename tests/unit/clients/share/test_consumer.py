"""The share consumer: each record is said something of, and nothing that is lost stays unsaid."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from qbus.clients import AcknowledgementLost, ShareConsumer, ShareRecord
from qbus.clients.share import consumer as consumer_module
from qbus.errors import ApiError, ConfigError, CorruptBatch, ErrorCode, QbusError
from qbus.wire import ApiKey
from tests.support.fake_broker import FakeBroker
from tests.support.fake_cluster import FakeCluster
from tests.support.fake_share import FakeShareGroup
from tests.support.waiting import eventually

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


@asynccontextmanager
async def shared(
    topics: dict[str, int] | None = None, lock: float = 30.0
) -> AsyncIterator[tuple[FakeBroker, FakeShareGroup]]:
    async with FakeBroker(topics) as broker:
        yield broker, FakeShareGroup(broker, lock=lock)


def consumer_of(broker: Any, topics: tuple[str, ...] = ("t",), **options: Any) -> ShareConsumer:
    options.setdefault("fetch_max_wait_ms", 20)
    return ShareConsumer(broker.bootstrap, "g", topics, **options)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def taken(consumer: ShareConsumer, count: int, **options: Any) -> list[ShareRecord]:
    """Poll until there are as many records."""
    found: list[ShareRecord] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            found += await consumer.poll(0.05, **options)
    return found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group": ""}, "name of its group"),
        ({"topics": "t"}, "list of names, not one string"),
        ({"acknowledge": "never"}, "acknowledge is one of implicit, explicit"),
        ({"acquire": "bytes"}, "acquire is one of batches, records"),
        ({"consumer_timeout_ms": 0}, "above 0"),
        ({"max_poll_records": 0}, "at least 1 record"),
    ],
)
async def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ShareConsumer("127.0.0.1", **{"group": "g", "topics": ["t"], **options})


async def test_a_record_has_everything_and_says_how_often_it_was_delivered() -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store([b"v"])
        (record,) = await taken(consumer, 1)
        assert (record.topic, record.partition, record.offset) == ("t", 0, 0)
        assert (record.key, record.value, record.timestamp, record.headers) == (None, b"v", 5, ())
        assert record.deliveries == 1
        assert record.place == ("t", 0, 0)
        assert consumer.held == [("t", 0, 0)]
        assert consumer.lock_timeout == 30.0
        assert consumer.assignment == [("t", 0)]
        assert "group g: 1 partitions" in repr(consumer)


async def test_the_next_poll_accepts_what_the_last_returned() -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store(numbers(5))
        assert [record.value for record in await taken(consumer, 5)] == numbers(5)
        assert group.said == []
        await consumer.poll(0.01)
        await consumer.flush()
        assert group.offsets(ACCEPT) == [0, 1, 2, 3, 4]
        assert consumer.held == []


async def test_acknowledgements_go_with_the_next_fetch() -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store(numbers(5))
        await taken(consumer, 5)
        group.store([b"more"])
        await taken(consumer, 1)
        assert group.offsets(ACCEPT) == [0, 1, 2, 3, 4]
        assert broker.asked(ApiKey.SHARE_ACKNOWLEDGE) == []
        request = broker.asked(ApiKey.SHARE_FETCH)[-1]
        (batch,) = request.topics[0].partitions[0].acknowledgement_batches
        assert (batch.first_offset, batch.last_offset) == (0, 4)
        assert batch.acknowledge_types == [ACCEPT]


async def test_they_do_not_wait_for_a_poll() -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store(numbers(5))
        consumer.accept(await taken(consumer, 5))
        await eventually(lambda: group.offsets(ACCEPT) == [0, 1, 2, 3, 4])
        assert len(broker.asked(ApiKey.SHARE_ACKNOWLEDGE)) == 1


async def test_what_else_is_said_of_records() -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store(numbers(6))
        records = await taken(consumer, 6)
        consumer.release(records[1])
        consumer.release(records[2], delay="90s")
        consumer.reject(records[3:5])
        await consumer.poll(0)
        await consumer.flush()
        said = [(offset, kind, delay) for _, _, offset, kind, delay, _ in group.said[:6]]
        assert said == [
            (0, ACCEPT, -1),
            (1, RELEASE, -1),
            (2, RELEASE, 90_000),
            (3, REJECT, -1),
            (4, REJECT, -1),
            (5, ACCEPT, -1),
        ]


async def test_a_released_record_comes_again() -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store([b"v"])
        (record,) = await taken(consumer, 1)
        consumer.release(record)
        (again,) = await taken(consumer, 1)
        assert (again.offset, again.deliveries) == (0, 2)


async def test_nothing_can_be_said_twice_of_a_record() -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store([b"v"])
        (record,) = await taken(consumer, 1)
        consumer.accept(record)
        with pytest.raises(QbusError, match="offset 0 of t-0 is not held"):
            consumer.release(record)


async def test_explicit_members_accept_nothing_by_themselves() -> None:
    async with shared() as (broker, group):
        async with consumer_of(broker, acknowledge="explicit") as consumer:
            group.store(numbers(3))
            records = await taken(consumer, 3)
            assert await consumer.poll(0.05) == []
            consumer.accept(records[1])
            await consumer.flush()
            assert consumer.held == [("t", 0, 0), ("t", 0, 2)]
        assert group.offsets(ACCEPT) == [1]
        assert {state.member for state in group.states.values()} == {""}


async def test_a_poll_returns_at_most_max_records_and_loses_none() -> None:
    async with shared({"t": 2}) as (broker, group):
        async with consumer_of(broker, max_poll_records=7) as consumer:
            for partition in range(2):
                group.store(numbers(30), partition=partition)
            found: list[ShareRecord] = []
            while len(found) < 60:
                polled = await consumer.poll(0.05, max_records=3)
                assert len(polled) <= 3
                found += polled
            assert {record.partition for record in found[:4]} == {0, 1}
        assert sorted(group.offsets(ACCEPT)) == sorted([*range(30)] * 2)


@pytest.mark.parametrize(("options", "asked"), [({}, (1, 7)), ({"acquire": "batches"}, (0, 500))])
async def test_records_as_many_as_are_asked_for_or_batches(
    options: dict[str, Any], asked: tuple[int, int]
) -> None:
    async with shared() as (broker, group), consumer_of(broker, **options) as consumer:
        group.store([b"v"])
        await taken(consumer, 1, max_records=7)
        request = broker.asked(ApiKey.SHARE_FETCH)[-1]
        assert (request.share_acquire_mode, request.max_records) == asked


async def test_a_loop_accepts_each_record_when_it_asks_for_the_next() -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store(numbers(5))
        seen = 0
        async for record in consumer:
            assert record.offset == seen
            if seen == 3:
                await consumer.flush()
                assert group.offsets(ACCEPT) == [0, 1, 2]
                break
            seen += 1
        assert [record.offset for record in await taken(consumer, 1)] == [4]


async def test_a_loop_ends_when_nothing_comes_for_long_enough() -> None:
    async with shared() as (broker, group):
        async with consumer_of(broker, consumer_timeout_ms=200) as consumer:
            group.store(numbers(3))
            assert [record.value async for record in consumer] == numbers(3)
        assert group.offsets(ACCEPT) == [0, 1, 2]


async def test_a_loop_that_ends_before_the_group_took_the_member_in_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with shared() as (broker, group):
        broker.handlers[ApiKey.SHARE_GROUP_HEARTBEAT] = _stalled
        async with consumer_of(broker, consumer_timeout_ms=50) as consumer:
            group.store(numbers(3))
            assert [record async for record in consumer] == []
            assert [record async for record in consumer] == []
    (said,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert said.startswith("consumer_timeout_ms=50 ended before share group g had assigned")


async def _stalled(_: object) -> Any:
    await asyncio.sleep(3600)


async def test_leaving_accepts_what_was_returned_and_gives_back_the_rest() -> None:
    async with shared() as (broker, group):
        async with consumer_of(broker) as consumer:
            group.store(numbers(5))
            await taken(consumer, 2, max_records=2)
        assert group.offsets(ACCEPT) == [0, 1]
        assert [state.member for state in group.states.values()] == [""] * 5
        assert group.sessions == {}
        assert group.left == [consumer.member_id]


async def test_an_exception_gives_back_the_last_poll_too() -> None:
    async with shared() as (broker, group):
        group.store(numbers(5))

        async def fail_at_the_third() -> None:
            async with consumer_of(broker) as consumer:
                async for record in consumer:
                    if record.offset == 2:
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail_at_the_third()
        assert group.offsets(ACCEPT) == [0, 1]
        assert [state.member for state in group.states.values()] == [""] * 5


async def test_a_loop_passes_over_what_waited_longer_than_its_lock(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with shared(lock=0.3) as (broker, group):
        group.store(numbers(2))
        group.store(numbers(2))
        seen: list[tuple[int, int]] = []
        options: dict[str, Any] = {"acquire": "batches", "on_lost": lambda _: None}
        async with consumer_of(broker, **options) as consumer:
            async for record in consumer:
                seen.append((record.offset, record.deliveries))
                if len(seen) == 1:
                    await asyncio.sleep(0.5)
                if len(seen) == 4:
                    break
        assert seen[0] == (0, 1)
        assert {deliveries for _, deliveries in seen[1:]} == {2}


async def test_a_loop_over_records_takes_more_the_quicker_it_is() -> None:
    async with shared() as (broker, group), consumer_of(broker, acquire="records") as consumer:
        for number in range(40):
            group.store([b"%d" % number])
        seen = 0
        async for record in consumer:
            taken_so_far = sum(state.deliveries for state in group.states.values())
            assert record.offset == seen
            seen += 1
            assert taken_so_far <= 2 * seen
            if seen == 3:
                await asyncio.sleep(0.3)
            if seen == 20:
                break


async def test_locks_are_renewed() -> None:
    async with shared(lock=0.4) as (broker, group), consumer_of(broker) as consumer:
        group.store(numbers(2))
        records = await taken(consumer, 2)
        for _ in range(4):
            await asyncio.sleep(0.2)
            await consumer.renew(records)
        await consumer.settle(records[0])
        assert group.offsets(ACCEPT) == [0]
        assert broker.asked(ApiKey.SHARE_ACKNOWLEDGE)[0].is_renew_ack


async def test_a_lock_that_ran_out_is_not_renewed() -> None:
    async with shared(lock=0.05) as (broker, group), consumer_of(broker) as consumer:
        group.store([b"v"])
        (record,) = await taken(consumer, 1)
        await asyncio.sleep(0.1)
        with pytest.raises(ApiError) as caught:
            await consumer.renew(record)
        assert caught.value.code is ErrorCode.INVALID_RECORD_STATE
        assert consumer.held == []


async def test_a_broker_that_cannot_renew_says_so_and_the_session_goes_on() -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        api = ApiKey.SHARE_ACKNOWLEDGE
        broker.versions = {**broker.versions, api: (1, 1), ApiKey.SHARE_FETCH: (1, 1)}
        group.store([b"v"])
        (record,) = await taken(consumer, 1)
        with pytest.raises(ApiError, match="cannot renew locks"):
            await consumer.renew(record)
        await consumer.settle(record, result=b"done")
        assert group.said[-1] == ("t", 0, 0, ACCEPT, -1, b"done")


async def test_of_a_refused_request_only_what_is_refused_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store(numbers(20))
        consumer.accept(await taken(consumer, 20))
        group.record_refusals = {7}
        with pytest.raises(AcknowledgementLost, match="offset 7 of t-0 is lost") as caught:
            await consumer.flush()
        assert caught.value.records == (("t", 0, 7),)
        assert caught.value.code is ErrorCode.INVALID_RECORD_STATE
        assert sorted(group.offsets(ACCEPT)) == [n for n in range(20) if n != 7]
        await consumer.flush()
    assert "offset 7 of t-0" in caplog.text


async def test_a_callback_is_told_of_losses_instead() -> None:
    told: list[AcknowledgementLost] = []

    async def on_lost(error: AcknowledgementLost) -> None:
        told.append(error)

    async with shared() as (broker, group), consumer_of(broker, on_lost=on_lost) as consumer:
        group.store(numbers(3))
        await taken(consumer, 3)
        group.record_refusals = {1, 2}
        await consumer.poll(0.1)
        await consumer.flush()
        assert sorted(place for error in told for place in error.records) == [
            ("t", 0, 1),
            ("t", 0, 2),
        ]


async def test_losses_of_the_last_poll_are_raised_when_it_is_closed() -> None:
    async with shared() as (broker, group):
        consumer = consumer_of(broker)
        group.store(numbers(3))
        await taken(consumer, 3)
        group.record_refusals = {1}
        with pytest.raises(AcknowledgementLost):
            await consumer.close()
        assert group.left == [consumer.member_id]


async def test_a_session_that_the_broker_forgot_begins_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store(numbers(3))
        await taken(consumer, 3)
        group.forget()
        again = await taken(consumer, 3)
        assert [record.deliveries for record in again] == [2, 2, 2]
        consumer.accept(again)
        with pytest.raises(AcknowledgementLost):  # those of the first time
            await consumer.flush()
        assert group.offsets(ACCEPT) == [0, 1, 2]
    assert "SHARE_SESSION_NOT_FOUND" in caplog.text


async def test_what_waits_to_be_read_is_not_given_to_the_user_after_its_session() -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store(numbers(4))
        first = await taken(consumer, 1, max_records=1)
        group.forget()
        consumer.accept(first)
        with pytest.raises(AcknowledgementLost):
            await consumer.flush()
        rest = await taken(consumer, 4)
        assert [(record.offset, record.deliveries) for record in rest] == [
            (offset, 2) for offset in range(4)
        ]


async def test_nor_to_another_loop_over_the_same_records() -> None:
    async with (
        shared() as (broker, group),
        consumer_of(broker, acquire="batches", on_lost=lambda _: None) as consumer,
    ):
        group.store(numbers(8))
        loops = aiter(consumer), aiter(consumer)
        assert [(await anext(loops[at])).offset for at in (0, 0, 1, 1)] == [0, 1, 2, 3]
        group.forget()
        await consumer.flush()
        again = await anext(loops[0])
        assert (again.offset, again.deliveries) == (0, 2)


async def test_a_broken_connection_loses_what_was_not_answered() -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store(numbers(2))
        records = await taken(consumer, 2)
        broker.hangup()
        group.forget()
        consumer.accept(records)
        with pytest.raises(AcknowledgementLost) as caught:
            await consumer.flush()
        assert set(caught.value.records) == {("t", 0, 0), ("t", 0, 1)}
        consumer.accept(await taken(consumer, 2))
        await consumer.flush()


async def test_partitions_that_move_are_fetched_from_their_new_leader() -> None:
    async with FakeCluster(2) as cluster:
        group = FakeShareGroup(*cluster.nodes.values())
        async with consumer_of(cluster) as consumer:
            group.store(numbers(2))
            consumer.accept(await taken(consumer, 2))
            await consumer.flush()
            cluster.move("t", 0, to=2)
            cluster.publish()
            group.store([b"after"])
            (record,) = await taken(consumer, 1)
            assert record.value == b"after"
            await consumer.settle(record)
            assert cluster.nodes[2].asked(ApiKey.SHARE_ACKNOWLEDGE)
            forgotten = [
                request.forgotten_topics_data
                for request in cluster.nodes[1].asked(ApiKey.SHARE_FETCH)
            ]
            assert forgotten


async def test_what_is_said_to_a_former_leader_is_lost() -> None:
    async with FakeCluster(2) as cluster:
        group = FakeShareGroup(*cluster.nodes.values())
        async with consumer_of(cluster) as consumer:
            group.store(numbers(2))
            consumer.accept(await taken(consumer, 2))
            cluster.move("t", 0, to=2)
            with pytest.raises(AcknowledgementLost) as caught:
                await consumer.flush()
            assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_records_of_both_brokers() -> None:
    async with FakeCluster(2, {"t": 2}) as cluster:
        cluster.move("t", 1, to=2)
        cluster.publish()
        group = FakeShareGroup(*cluster.nodes.values())
        async with consumer_of(cluster, acquire="batches") as consumer:
            for partition in range(2):
                group.store(numbers(5), partition=partition)
            consumer.accept(await taken(consumer, 10))
            await consumer.flush()
        assert sorted(group.offsets(ACCEPT)) == sorted([*range(5)] * 2)
        assert group.sessions == {}


async def test_who_takes_records_asks_one_broker_after_the_other() -> None:
    async with FakeCluster(2, {"t": 2}) as cluster:
        cluster.move("t", 1, to=2)
        cluster.publish()
        group = FakeShareGroup(*cluster.nodes.values())
        for partition in range(2):
            for number in range(3):
                group.store([b"%d" % number], partition=partition)
        async with consumer_of(cluster, acquire="records") as consumer:
            seen = [(await taken(consumer, 1, max_records=1))[0] for _ in range(4)]
            taken_by = [state for state in group.states.values() if state.deliveries]
            assert len(taken_by) == 4, "nothing that was not asked for"
            assert {record.partition for record in seen} == {0, 1}


async def test_partitions_that_are_taken_away_are_given_back() -> None:
    async with shared({"t": 2}) as (broker, group), consumer_of(broker) as consumer:
        for partition in range(2):
            group.store(numbers(5), partition=partition)
        await taken(consumer, 1, max_records=1)
        await eventually(lambda: len(group.states) == 10)
        group.assign_again(withheld=[("t", 1)])
        await eventually(lambda: consumer.assignment == [("t", 0)])
        await eventually(lambda: len(group.offsets(RELEASE)) >= 4)
        rest = [record async for record in _until_empty(consumer)]
        assert {record.partition for record in rest} == {0}


async def _until_empty(consumer: ShareConsumer) -> AsyncIterator[ShareRecord]:
    while records := await consumer.poll(0.1):
        for record in records:
            yield record


async def test_a_member_that_the_group_lost_joins_again(caplog: pytest.LogCaptureFixture) -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store(numbers(2))
        await taken(consumer, 2)
        await consumer.poll(0)
        await consumer.flush()
        group.forget(members=True)
        group.store([b"after"])
        async with asyncio.timeout(10):
            while not group.members:
                await consumer.poll(0.05)
        assert "lost this member" in caplog.text
        heartbeats = broker.asked(ApiKey.SHARE_GROUP_HEARTBEAT)
        assert {request.member_id for request in heartbeats} == {consumer.member_id}
        joins = [request for request in heartbeats if request.member_epoch == 0]
        assert [request.subscribed_topic_names for request in joins] == [["t"], ["t"]]


async def test_a_coordinator_that_moves_is_found_again() -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.refusals[ApiKey.SHARE_GROUP_HEARTBEAT] += [
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        ]
        group.store([b"v"])
        assert len(await taken(consumer, 1)) == 1
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == 2


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (ApiKey.SHARE_GROUP_HEARTBEAT, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ApiKey.SHARE_GROUP_HEARTBEAT, ErrorCode.GROUP_MAX_SIZE_REACHED),
        (ApiKey.SHARE_FETCH, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
async def test_errors_that_no_attempt_helps_are_raised(api: ApiKey, code: ErrorCode) -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.refusals[api].append(code)
        group.store([b"v"])
        with pytest.raises(ApiError) as caught:
            await taken(consumer, 1)
        assert caught.value.code is code


async def test_a_broker_without_share_groups_says_so() -> None:
    async with shared() as (broker, _), consumer_of(broker) as consumer:
        broker.versions = {
            api: versions
            for api, versions in broker.versions.items()
            if api is not ApiKey.SHARE_GROUP_HEARTBEAT
        }
        with pytest.raises(ApiError, match="SHARE_GROUP_HEARTBEAT") as caught:
            await taken(consumer, 1)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


async def test_a_member_that_does_not_poll_leaves_until_its_next_poll(
    caplog: pytest.LogCaptureFixture,
) -> None:
    impatient: dict[str, Any] = {"max_poll_interval_ms": 200}
    async with shared() as (broker, group), consumer_of(broker, **impatient) as consumer:
        group.store([b"v"])
        await consumer.settle((await taken(consumer, 1))[0])
        await eventually(lambda: group.left == [consumer.member_id])
        assert consumer.assignment == []
        group.store([b"w"])
        assert [record.value for record in await taken(consumer, 1)] == [b"w"]
    assert "no poll within 0.2 s" in caplog.text


async def test_a_topic_that_comes_later() -> None:
    async with shared({"t": 1}) as (broker, group), consumer_of(broker, ("t", "u")) as consumer:
        group.store([b"v"])
        await taken(consumer, 1)
        broker.ids["u"] = bytes(range(16))
        broker.topics["u"] = 1
        group.assign_again()
        group.store([b"w"], topic="u")
        (record,) = await taken(consumer, 1)
        assert (record.topic, record.value) == ("u", b"w")


async def test_a_topic_that_does_not_exist_is_waited_for_aloud(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with shared({"t": 1}) as (broker, group), consumer_of(broker, ("nope", "t")) as consumer:
        async with asyncio.timeout(20):
            while "waits for topic nope" not in caplog.text:
                assert await consumer.poll(0.1) == []
        group.store([b"v"])
        assert len(await taken(consumer, 1)) == 1


async def test_a_topic_that_may_not_be_read_is_an_error() -> None:
    async with shared({"t": 1}) as (broker, _), consumer_of(broker, ("t", "u")) as consumer:
        known = broker.handlers[ApiKey.METADATA]

        def refuse(request: Any) -> Any:
            response = known(request)
            for topic in response.topics:
                if topic.name == "u":
                    topic.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return response

        broker.handlers[ApiKey.METADATA] = refuse
        with pytest.raises(ApiError) as caught:
            await taken(consumer, 1)
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_damaged_batch_is_raised_and_given_back() -> None:
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store(numbers(2))
        group.store(numbers(3))
        group.store(numbers(1))
        broker.logs["t", 0].batches[1] = broker.logs["t", 0].batches[1][:-1] + b"\xff"
        assert [record.offset for record in await taken(consumer, 2)] == [0, 1]
        with pytest.raises(CorruptBatch, match="t-0 at offset 2"):
            await consumer.poll(0.5)
        assert [record.offset for record in await taken(consumer, 1)] == [5]
        await consumer.flush()
        assert group.offsets(RELEASE)[:3] == [2, 3, 4]


async def test_silent_brokers_do_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(consumer_module, "_LONGEST_GOODBYE", 0.2)
    async with shared() as (broker, group):
        consumer = consumer_of(broker, acknowledge="explicit")
        group.store([b"v"])
        await taken(consumer, 1)
        for api in (ApiKey.SHARE_ACKNOWLEDGE, ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH):
            broker.handlers[api] = lambda _: asyncio.sleep(60)
        async with asyncio.timeout(5):
            await consumer.close()
    assert "the brokers are silent" in caplog.text


async def test_a_closed_consumer_takes_nothing() -> None:
    async with shared() as (broker, _):
        consumer = consumer_of(broker)
        await consumer.close()
        await consumer.close()
        with pytest.raises(QbusError, match="closed"):
            await consumer.poll(0.01)


async def test_columns_of_what_was_acquired() -> None:
    pytest.importorskip("pyarrow")
    async with shared() as (broker, group), consumer_of(broker) as consumer:
        group.store(numbers(6))
        for offset in (1, 4):
            group.states["t", 0, offset].is_done = True
        batches: list[Any] = []
        while not batches:
            batches = await consumer.poll_arrow(0.05)
        (batch,) = batches
        assert batch.column("offset").to_pylist() == [0, 2, 3, 5]
        assert batch.column("value").to_pylist() == [b"0", b"2", b"3", b"5"]
        assert batch.column("deliveries").to_pylist() == [1, 1, 1, 1]
        consumer.reject(batch.slice(0, 2))
        assert await consumer.poll_arrow(0.01) == []
        await consumer.flush()
        assert (group.offsets(REJECT), group.offsets(ACCEPT)) == ([0, 2], [3, 5])
