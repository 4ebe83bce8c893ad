"""A queue over the Kafka protocol: jobs as Disque has them, and their results."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from qbus import jobs
from qbus.clients import JobGivenUp, Queue
from qbus.errors import ApiError, ConfigError, ErrorCode
from qbus.records import build_batch, iter_records
from qbus.records.control import (
    Change,
    ChangeKind,
    ControlType,
    Shared,
    SharedResult,
    control_batch,
    encode_result,
    encode_shared,
)
from qbus.wire import ApiKey
from qbus.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from qbus.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.support.fake_broker import FakeBroker
from tests.support.fake_share import FakeShareGroup
from tests.support.waiting import eventually

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


@asynccontextmanager
async def queued(
    partitions: int = 1, lock: float = 30.0
) -> AsyncIterator[tuple[FakeBroker, FakeShareGroup, Queue]]:
    async with FakeBroker({"q": partitions}) as broker:
        broker.handlers[ApiKey.DESCRIBE_CONFIGS] = _delays
        group = FakeShareGroup(broker, lock=lock)
        async with Queue(broker.bootstrap, "q") as queue:
            yield broker, group, queue


def _delays(_: DescribeConfigsRequest) -> DescribeConfigsResponse:
    entry = DescribeConfigsResourceResult(name="qbus.delay.enable", value="true")
    result = DescribeConfigsResult(resource_name="q", configs=[entry])
    return DescribeConfigsResponse(results=[result])


def headers_of(broker: FakeBroker, partition: int = 0) -> list[dict[str, bytes | None]]:
    return [
        dict(record.headers)
        for batch in broker.logs["q", partition].batches
        for record in iter_records(batch)
    ]


async def got(queue: Queue) -> Any:
    job = await queue.get(10)
    assert job is not None
    return job


def say(broker: FakeBroker, *records: tuple[ControlType, bytes], partition: int = 0) -> None:
    broker.logs["q", partition].append(bytes(control_batch(records, 9)))
    broker.wake()


def over(*changes: Change, group: str = jobs.GROUP) -> tuple[ControlType, bytes]:
    return ControlType.SHARED, encode_shared(Shared(group, [*changes]))


def result(offset: int, body: bytes) -> tuple[ControlType, bytes]:
    return ControlType.RESULT, encode_result(SharedResult(jobs.GROUP, offset, body))


async def test_a_job_from_end_to_end() -> None:
    async with queued() as (broker, group, queue):
        job_id = await queue.add(b"body", key=b"k", headers=[("h", b"x")])
        job = await got(queue)
        assert (job.id, job.queue, job.body, job.key) == (job_id, "q", b"body", b"k")
        assert (job.headers, job.deliveries, job.retry) == ((("h", b"x"),), 1, 300)
        await queue.ack(job, b"result")
        assert group.said == [("q", 0, 0, ACCEPT, -1, b"result")]
        assert await queue.get(0.05) is None
        parsed = jobs.parse_id(job_id)
        assert parsed is not None
        assert parsed.is_in(broker.ids["q"])
        assert (parsed.partition, parsed.offset, parsed.is_delayed) == (0, 0, False)
        assert parsed.node == jobs.node_name("fake", 1)[:8]
        assert "0 jobs held" in repr(queue)


@pytest.mark.parametrize(
    ("options", "headers"),
    [
        ({}, (b"86400,300,0,1", b"86400s")),
        ({"ttl": "100s"}, (b"100,10,0,1", b"100s")),
        ({"ttl": "5s"}, (b"5,1,0,1", b"5s")),
        ({"ttl": 1500, "retry": 0}, (b"2,0,0,1", b"2s")),
        ({"ttl": "1h", "delay": "15m", "retry": "1m"}, (b"3600,60,900,1", b"2700s")),
    ],
)
async def test_options_travel_in_headers(
    options: dict[str, Any], headers: tuple[bytes, bytes]
) -> None:
    async with queued() as (broker, _, queue):
        await queue.add(b"body", **options)
        (found,) = headers_of(broker)
        said, ttl = found["qbus-job"] or b"", found["qbus-ttl"]
        assert (said.rpartition(b",")[0], ttl) == headers
        assert ("qbus-deliver-at" in found) == ("delay" in options)


@pytest.mark.parametrize(
    "options", [{"ttl": 0}, {"delay": "1d"}, {"ttl": "1m", "delay": "1m"}, {"retry": -1}]
)
async def test_durations_that_make_no_sense(options: dict[str, Any]) -> None:
    async with queued() as (_, _, queue):
        with pytest.raises(ValueError, match=r"\w"):
            await queue.add(b"body", **options)


@pytest.mark.parametrize("body", [None, "text"])
async def test_a_body_is_bytes(body: Any) -> None:
    async with queued() as (_, _, queue):
        with pytest.raises(TypeError):
            await queue.add(body)


async def test_jobs_are_spread_and_those_of_a_key_stay_together() -> None:
    async with queued(partitions=3) as (broker, _, queue):
        for _ in range(6):
            await queue.add(b"body")
        assert [len(headers_of(broker, index)) for index in range(3)] == [2, 2, 2]
        places = {
            parsed.partition
            for _ in range(4)
            if (parsed := jobs.parse_id(await queue.add(b"body", key=b"one")))
        }
        assert len(places) == 1


async def test_a_job_at_most_once_is_done_before_it_is_given_out() -> None:
    async with queued() as (_, group, queue):
        await queue.add(b"body", retry=0)
        job = await got(queue)
        assert group.offsets(ACCEPT) == [0]
        await queue.ack(job)
        assert job.retry == 0
        with pytest.raises(ApiError):
            await queue.nack(job)


async def test_a_job_at_most_once_whose_lock_is_lost_is_not_given_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with queued() as (_, group, queue):
        await queue.add(b"body", retry=0)
        group.record_refusals = {0}
        assert await queue.get(0.3) is None
    assert "is not given out" in caplog.text


async def test_refused_and_rejected_jobs() -> None:
    async with queued() as (_, group, queue):
        for number in range(2):
            await queue.add(b"%d" % number)
        await queue.nack(await got(queue), delay="2m")
        assert group.said[-1][3:5] == (RELEASE, 120_000)
        job = await got(queue)
        assert (job.body, job.deliveries) == (b"0", 2)
        await queue.nack(job)
        assert group.said[-1][3:5] == (RELEASE, -1)
        assert group.nacks == [0, 0]
        await queue.reject(await got(queue))
        assert group.said[-1][3] == REJECT
        await queue.ack(await got(queue))


async def test_what_a_lost_lock_says() -> None:
    async with queued() as (_, group, queue):
        await queue.add(b"body")
        job = await got(queue)
        group.record_refusals = {0}
        with pytest.raises(ApiError) as caught:
            await queue.ack(job)
        assert caught.value.code is ErrorCode.INVALID_RECORD_STATE


async def test_locks_shorter_than_the_retry_time_are_renewed() -> None:
    async with queued(lock=0.3) as (_, group, queue):
        await queue.add(b"body", retry="10s")
        job = await got(queue)
        await eventually(lambda: len(group.offsets(RENEW)) >= 3)
        await queue.ack(job)
        renewals = len(group.offsets(RENEW))
        await asyncio.sleep(0.2)
        assert len(group.offsets(RENEW)) == renewals


async def test_a_job_is_given_back_when_its_time_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with queued() as (_, group, queue):
        await queue.add(b"body", retry="1s")
        job = await got(queue)
        await asyncio.sleep(0.7)
        await queue.working(job)
        await asyncio.sleep(0.7)
        assert group.offsets(RELEASE) == []
        await eventually(lambda: group.offsets(RELEASE) == [0])
        with pytest.raises(ApiError):
            await queue.ack(job)
    assert "was not done in time" in caplog.text


async def test_a_job_that_takes_longer() -> None:
    async with queued() as (_, group, queue):
        await queue.add(b"body")
        job = await got(queue)
        await queue.working(job)
        assert group.offsets(RENEW) == [0]
        await queue.ack(job)


async def test_a_loop_acknowledges_each_job_when_it_asks_for_the_next() -> None:
    async with queued() as (_, group, queue):
        for number in range(3):
            await queue.add(b"%d" % number)
        seen = 0
        async for job in queue:
            assert group.offsets(ACCEPT) == [*range(seen)]
            if seen == 1:
                await queue.reject(job)
                break
            seen += 1
        assert (group.offsets(ACCEPT), group.offsets(REJECT)) == ([0], [1])


async def test_leaving_gives_back_what_was_taken() -> None:
    async with queued() as (_, group, queue):
        await queue.add(b"body")
        await got(queue)
    assert [state.member for state in group.states.values()] == [""]


async def test_records_of_others_are_jobs_too() -> None:
    async with queued() as (broker, _, queue):
        broker.logs["q", 0].append(bytes(build_batch([(None, None, (("h", b"x"),), 5000)])))
        job = await got(queue)
        assert (job.body, job.headers, job.added, job.retry) == (b"", (("h", b"x"),), 5000, 30)
        parsed = jobs.parse_id(job.id)
        assert parsed is not None
        assert (parsed.offset, parsed.seconds, parsed.is_at_most_once) == (0, 5, False)
        await queue.ack(job)


async def test_a_delayed_job_keeps_its_id() -> None:
    async with queued() as (broker, _, queue):
        job_id = await queue.add(b"body", delay="1h")
        parsed = jobs.parse_id(job_id)
        assert parsed is not None
        assert parsed.is_delayed
        (headers,) = headers_of(broker)
        due = int(headers["qbus-deliver-at"] or b"")
        assert parsed.seconds == due // 1000
        told = {**headers, "qbus-delayed-offset": b"0"}
        broker.logs["q", 0].append(bytes(build_batch([(None, b"b", (*told.items(),), due)])))
        job = await got(queue)  # the fake broker does not hold the first one back
        await queue.ack(job)
        delivered = await got(queue)
        assert (delivered.id, delivered.record.offset) == (job_id, 1)
        await queue.ack(delivered)


async def test_a_queue_is_created_when_it_is_first_used() -> None:
    asked: list[CreateTopicsRequest] = []
    async with FakeBroker({"t": 1}) as broker:
        FakeShareGroup(broker)

        def create(request: CreateTopicsRequest) -> CreateTopicsResponse:
            asked.append(request)
            broker.topics["q"] = 1
            broker.ids["q"] = bytes(range(16))
            return CreateTopicsResponse(topics=[CreatableTopicResult(name="q")])

        broker.handlers[ApiKey.CREATE_TOPICS] = create
        async with Queue(broker.bootstrap, "q", request_timeout_ms=5000) as queue:
            assert await queue.add(b"body")
        (topic,) = asked[0].topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("q", 1, 1)
        assert {one.name: one.value for one in topic.configs} == {
            "qbus.delay.enable": "true",
            "qbus.queue.retention": "acknowledged",
            "qbus.queue.delivery.limit": "5",
            "qbus.queue.retry.backoff.ms": "200",
        }


async def test_names_that_are_no_topics_are_escaped() -> None:
    queue = Queue("127.0.0.1:1", "mail:out")
    assert (queue.name, queue.topic) == ("mail:out", "disque-x.mail-3aout")
    await queue.close()
    with pytest.raises(ConfigError):
        Queue("127.0.0.1:1", "")


# Results.


async def test_the_result_of_a_job() -> None:
    async with queued() as (broker, _, queue):
        ids = [await queue.add(b"body") for _ in range(3)]
        waiting = [asyncio.create_task(queue.wait(job_id)) for job_id in ids]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)
        say(broker, over(Change(ChangeKind.ACKNOWLEDGED, 1, 1), group="others"))
        say(broker, result(1, b"42"), over(Change(ChangeKind.ACKNOWLEDGED, 1, 2)))
        assert await asyncio.wait_for(waiting[1], 5) == b"42"
        assert await asyncio.wait_for(waiting[2], 5) is None
        assert not waiting[0].done()
        say(broker, over(Change(ChangeKind.ARCHIVED, 0, 0)))
        with pytest.raises(JobGivenUp, match="offset 0 of q-0 was given up"):
            await asyncio.wait_for(waiting[0], 5)


async def test_whoever_asks_later_gets_it_as_well() -> None:
    async with queued() as (broker, _, queue):
        ids = [await queue.add(b"body") for _ in range(2)]
        say(broker, result(0, b"42"), over(Change(ChangeKind.ACKNOWLEDGED, 0, 0)))
        later = asyncio.create_task(queue.wait(ids[1]))
        await asyncio.sleep(0.05)
        answers = await asyncio.gather(*(queue.wait(ids[0], timeout=5) for _ in range(3)))
        assert answers == [b"42"] * 3
        say(broker, over(Change(ChangeKind.ACKNOWLEDGED, 1, 1)))
        assert await asyncio.wait_for(later, 5) is None


async def test_the_result_of_a_delayed_job() -> None:
    async with queued() as (broker, _, queue):
        job_id = await queue.add(b"body", delay="1h")
        waiting = asyncio.create_task(queue.wait(job_id))
        say(broker, over(Change(ChangeKind.ACKNOWLEDGED, 0, 0)))  # of what is not the job itself
        headers = (("qbus-delayed-offset", b"0"),)
        broker.logs["q", 0].append(bytes(build_batch([(None, b"body", headers, 5)])))
        say(broker, result(2, b"late"), over(Change(ChangeKind.ACKNOWLEDGED, 2, 2)))
        assert await asyncio.wait_for(waiting, 5) == b"late"


async def test_waiting_has_an_end() -> None:
    async with queued() as (_, _, queue):
        job_id = await queue.add(b"body")
        with pytest.raises(TimeoutError, match=r"of queue q is not done after 0\.05 s"):
            await queue.wait(job_id, timeout=0.05)


@pytest.mark.parametrize(
    "job_id", ["", "D-something", jobs.encode_id(bytes(16), 0, 0, jobs.JobOptions(1, 1), 0)]
)
async def test_ids_of_no_job_of_the_queue(job_id: str) -> None:
    async with queued() as (_, _, queue):
        with pytest.raises(ValueError, match="is the id of no job of queue q"):
            await queue.wait(job_id)


async def test_a_job_that_the_log_does_not_reach_back_to() -> None:
    async with queued() as (broker, _, queue):
        job_id = await queue.add(b"body")
        broker.logs["q", 0].start = 1
        with pytest.raises(ApiError) as caught:
            await queue.wait(job_id, timeout=5)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


# Several programs.


async def test_who_gives_up_takes_nothing_from_others() -> None:
    async with queued() as (broker, group, queue), Queue(broker.bootstrap, "q") as other:
        assert await queue.get(0.05) is None
        assert await other.get(0.05) is None
        await asyncio.sleep(0.6)  # what the broker still waited for has ended
        await queue.add(b"body")
        job = await got(other)
        assert (job.body, job.deliveries) == (b"body", 1)
        await other.ack(job)
        assert group.offsets(RELEASE) == []


async def test_a_job_that_comes_too_late_for_a_get_is_given_back_at_once() -> None:
    async with queued() as (_, group, queue):
        assert await queue.get(0.05) is None
        await queue.add(b"body")  # while the fake broker waits for it, which a real one would not
        await asyncio.sleep(0.1)
        assert group.said in ([], [("q", 0, 0, RELEASE, 0, None)])
        assert group.states["q", 0, 0].member == "" or not group.said
        job = await got(queue)
        assert job.body == b"body"
        await queue.ack(job)


async def test_a_cancelled_get_loses_no_job() -> None:
    async with queued() as (_, group, queue):
        waiting = asyncio.create_task(queue.get(10))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await queue.add(b"body")
        await queue.ack(await got(queue))
        assert group.offsets(ACCEPT) == [0]


async def test_one_who_waits_for_a_job_that_is_gone_does_not_fail_the_others() -> None:
    async with queued() as (broker, _, queue):
        ids = [await queue.add(b"body") for _ in range(2)]
        other = asyncio.create_task(queue.wait(ids[1]))
        await asyncio.sleep(0.05)
        broker.logs["q", 0].start = 1
        with pytest.raises(ApiError):
            await queue.wait(ids[0], timeout=5)
        say(broker, over(Change(ChangeKind.ACKNOWLEDGED, 1, 1)))
        assert await asyncio.wait_for(other, 5) is None


async def test_what_nobody_waits_for_any_more_is_a_loss_like_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with queued() as (broker, group, queue):
        await queue.add(b"body")
        job = await got(queue)
        group.record_refusals = {0}
        acknowledging = asyncio.create_task(queue.ack(job))
        await asyncio.sleep(0)
        acknowledging.cancel()
        await eventually(lambda: broker.asked(ApiKey.SHARE_ACKNOWLEDGE))
        await queue.get(0.2)
    assert "the acknowledgement of offset 0 of q-0 is lost" in caplog.text
