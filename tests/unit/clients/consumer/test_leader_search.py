"""Reading goes on when a leader is known again, and brokers are asked for it in moderation."""

import asyncio
import time

import pytest

from qbus.clients import Consumer
from qbus.clients.consumer import leader_search
from qbus.errors import ApiError, ErrorCode
from qbus.records import build_batch
from qbus.service.backoff import Backoff
from qbus.wire import ApiKey
from qbus.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.support.fake_broker import NODE, FakeBroker

GONE = 7
NOBODY = -1
PATIENT = 10.0
NEVER = 3600.0
NEW = "x"
FORBIDDEN = "forbidden"


def batch(value: bytes) -> bytes:
    return bytes(build_batch([(None, value, (), 5)]))


async def read(consumer: Consumer, timeout: float = PATIENT) -> list[bytes | None]:
    return [record.value for part in await consumer.poll(timeout) for record in part]


@pytest.mark.parametrize("leader", [GONE, NOBODY])
async def test_a_partition_whose_leader_is_elected_later_is_read(
    leader: int,
) -> None:
    """The broker is gone from the list of brokers before another is elected."""
    async with FakeBroker({"t": 2}) as broker, Consumer(broker.bootstrap) as consumer:
        broker.leaders["t", 0] = leader
        broker.logs["t", 0].append(batch(b"of a new leader"))
        broker.logs["t", 1].append(batch(b"of another"))
        consumer.assign([("t", 0, 0), ("t", 1, 0)])
        assert await read(consumer) == [b"of another"]
        assert await read(consumer, 0.1) == []
        broker.leaders["t", 0], broker.epochs["t", 0] = NODE, 1
        assert await read(consumer) == [b"of a new leader"]


async def test_a_lost_leader_is_searched_until_there_is_one() -> None:
    async with FakeBroker({"t": 1}) as broker, Consumer(broker.bootstrap) as consumer:
        broker.logs["t", 0].append(batch(b"before"))
        consumer.assign([("t", 0, 0)])
        assert await read(consumer) == [b"before"]
        broker.leaders["t", 0] = GONE
        broker.hangup()
        assert await read(consumer, 0.3) == []
        broker.leaders["t", 0] = NODE
        broker.logs["t", 0].append(batch(b"after"))
        assert await read(consumer) == [b"after"]


async def test_a_topic_and_a_partition_that_appear_later_are_read() -> None:
    async with FakeBroker({"t": 1}) as broker, Consumer(broker.bootstrap) as consumer:
        consumer.assign([("t", 1, 0), (NEW, 0, 0)])
        assert await read(consumer, 0.1) == []
        for partition in [("t", 1), (NEW, 0)]:
            broker.logs[partition].append(batch(b"new"))
        broker.topics |= {"t": 2, NEW: 1}
        found: list[bytes | None] = []
        while len(found) < 2:
            found += await read(consumer)
        assert found == [b"new", b"new"]


@pytest.mark.parametrize("topic", ["t", "unknown"])
async def test_the_search_for_a_leader_backs_off(topic: str) -> None:
    async with FakeBroker({"t": 1}) as broker, Consumer(broker.bootstrap) as consumer:
        broker.leaders["t", 0] = NOBODY
        consumer.assign([(topic, 0, 0)])
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            assert await read(consumer, 0.01) == []
        assert len(broker.asked(ApiKey.METADATA)) <= 10


async def test_another_lost_leader_restarts_the_search_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader_search, "Backoff", lambda: Backoff(NEVER, NEVER))
    async with FakeBroker({"t": 2}) as broker, Consumer(broker.bootstrap) as consumer:
        broker.leaders["t", 0] = NOBODY
        consumer.assign([("t", 0, 0), ("t", 1, 0)])
        assert await read(consumer, 0.1) == []
        for value in (b"before", b"after"):
            broker.hangup()
            broker.logs["t", 1].append(batch(value))
            assert await read(consumer) == [value]


async def test_a_topic_that_is_refused_is_told_of() -> None:
    async with FakeBroker() as broker, Consumer(broker.bootstrap) as consumer:

        def refuse(request: MetadataRequest) -> MetadataResponse:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answer = MetadataResponseTopic(error_code=code, name="t")
            return MetadataResponse(brokers=broker.brokers(), topics=[answer])

        broker.handlers[ApiKey.METADATA] = refuse
        consumer.assign([("t", 0, 0)])
        with pytest.raises(ApiError) as refused:
            await read(consumer)
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert "t" in str(refused.value)


async def test_the_error_of_an_unassigned_topic_is_not_reported() -> None:
    async with FakeBroker({"t": 1}) as broker, Consumer(broker.bootstrap) as consumer:
        tell, may_answer = broker.handlers[ApiKey.METADATA], asyncio.Event()

        async def refuse(request: MetadataRequest) -> MetadataResponse:
            names = [topic.name for topic in request.topics or ()]
            if names != [FORBIDDEN]:
                told: MetadataResponse = tell(request)
                return told
            await may_answer.wait()
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answer = MetadataResponseTopic(error_code=code, name=FORBIDDEN)
            return MetadataResponse(brokers=broker.brokers(), topics=[answer])

        broker.handlers[ApiKey.METADATA] = refuse
        broker.logs["t", 0].append(batch(b"here"))
        consumer.assign([(FORBIDDEN, 0, 0)])
        assert await read(consumer, 0.1) == []
        consumer.assign([("t", 0, 0)])
        may_answer.set()
        assert await read(consumer) == [b"here"]


async def test_a_cluster_that_refuses_to_answer_is_told_of() -> None:
    async with FakeBroker() as broker, Consumer(broker.bootstrap) as consumer:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        broker.handlers[ApiKey.METADATA] = lambda _: MetadataResponse(error_code=code)
        consumer.assign([("t", 0, 0)])
        with pytest.raises(ApiError) as refused:
            await read(consumer)
        assert refused.value.code is code


async def test_closing_does_not_wait_for_a_leader() -> None:
    async with FakeBroker() as broker:
        broker.leaders["t", 0] = NOBODY
        async with Consumer(broker.bootstrap) as consumer:
            consumer.assign([("t", 0, 0)])
            assert await read(consumer, 0.1) == []
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not [task for task in others if "LeaderSearch" in repr(task)]
