"""Clients of a hostile broker, and the outcomes that are allowed."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from qbus.aio import Admin, Consumer, Producer
from qbus.clients import ConsumerRecord, TopicPartition
from qbus.errors import QbusError
from qbus.records import build_values_batch
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tests.sdk.reading import records
from tests.support.fake_broker import FakeBroker
from tests.unit.clients.consumer.fake_group import FakeGroup

PATIENCE = 1.0
"""Seconds that each client waits in vain."""
LIMIT = 20.0
"""Seconds after which nothing may still hang, on a busy machine."""

Victim = Callable[[str], Awaitable[object]]

DONE, STARVED, FELL_OVER, HUNG = "done", "starved", "fell over", "hung"


class Starved(Exception):  # noqa: N818 - what happened
    """A consumer got nothing, and was told nothing: it goes on asking."""


async def produce(bootstrap: str) -> None:
    """Send one record and wait for its delivery."""
    async with Producer(
        bootstrap,
        request_timeout_ms=int(PATIENCE * 500),
        delivery_timeout_ms=int(PATIENCE * 1000),
    ) as producer:
        await (await producer.send("t", b"v"))


async def consume(bootstrap: str, **options: object) -> list[ConsumerRecord]:
    """Read the topic's only partition until something comes, or patience is at its end."""
    async with consumer(bootstrap, **options) as reading:
        reading.assign([("t", 0, None)])
        return await first_records(reading)


async def consume_in_a_group(bootstrap: str) -> None:
    """Read the topic as the only member of a group."""
    async with consumer(bootstrap, group="g", rebalance_timeout_ms=300) as reading:
        reading.subscribe(["t"])
        await first_records(reading)
        await reading.commit()


async def administer(bootstrap: str) -> None:
    """Ask for a topic and for its offsets."""
    async with Admin(bootstrap, request_timeout_ms=int(PATIENCE * 1000)) as admin:
        await admin.describe_topic("t")
        await admin.list_offsets({TopicPartition("t", 0): -1})


def consumer(bootstrap: str, **options: object) -> Consumer:
    """A consumer that soon loses patience."""
    defaults: dict[str, object] = {
        "offset_reset": "earliest",
        "request_timeout_ms": int(PATIENCE * 500),
        "fetch_max_wait_ms": 50,
    }
    return Consumer(bootstrap, **defaults | options)  # type: ignore[arg-type]


async def first_records(reading: Consumer) -> list[ConsumerRecord]:
    """Return the records of the first poll that has some; raise Starved after a while."""
    deadline = time.monotonic() + 2 * PATIENCE
    while time.monotonic() < deadline:
        if found := records(await reading.poll(0.1)):
            return found
    raise Starved


ASKS: dict[Victim, tuple[ApiKey, ...]] = {
    produce: (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE),
    consume: (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH),
    consume_in_a_group: (
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_COMMIT,
    ),
    administer: (ApiKey.METADATA, ApiKey.LIST_OFFSETS),
}
"""The victims, and what each asks on its way: where it can be lied to."""


async def attack(victim: Victim, harm: Callable[[FakeBroker], None]) -> str:
    """Run ``victim`` against a broker changed by ``harm``; return an error's name, or DONE.

    FELL_OVER, when it raised what is no error of ours, and HUNG come with a reason to print.
    """
    async with FakeBroker() as broker:
        FakeGroup(broker)
        broker.logs["t", 0].append(good_batch())
        harm(broker)
        try:
            async with asyncio.timeout(LIMIT):
                await victim(broker.bootstrap)
        except QbusError as error:
            return type(error).__name__ if str(error) else f"{FELL_OVER}: no message"
        except Starved:
            return STARVED
        except TimeoutError:
            return HUNG
        except Exception as error:
            return f"{FELL_OVER}: {error!r}"
    return DONE


def mishaps(fared: Mapping[str, str]) -> dict[str, str]:
    """The outcomes that are not allowed: another error than ours, or no end."""
    return {who: end for who, end in fared.items() if end.startswith((FELL_OVER, HUNG))}


async def attack_everywhere(mangle: Callable[[bytes], bytes]) -> dict[str, str]:
    """Every victim lied to at every step, all at once; how each fared."""

    def harm(api: ApiKey) -> Callable[[FakeBroker], None]:
        return lambda broker: broker.mangle.update({api: mangle})

    places = [(victim, api) for victim, apis in ASKS.items() for api in apis]
    ends = await asyncio.gather(*(attack(victim, harm(api)) for victim, api in places))
    return {
        f"{victim.__name__} at {api.name}": end
        for (victim, api), end in zip(places, ends, strict=True)
    }


def good_batch(values: Iterable[bytes] = (b"v",)) -> bytes:
    """A batch that nothing is wrong with."""
    return bytes(build_values_batch(list(values), 1_700_000_000_000))


def serve_fetches(
    broker: FakeBroker, served: Callable[[FetchPartition], PartitionData | None]
) -> None:
    """Answer every fetch at once with what is ``served`` of each partition that it asks for."""

    def fetch(request: FetchRequest) -> FetchResponse:
        response = FetchResponse()
        for topic in request.topics:
            parts = [part for asked in topic.partitions if (part := served(asked))]
            response.responses.append(FetchableTopicResponse(topic=topic.topic, partitions=parts))
        return response

    broker.handlers[ApiKey.FETCH] = fetch
