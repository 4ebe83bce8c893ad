"""Clients that push metrics: what they are told, what is taken, what is shown."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from qbus.broker.metrics import Metrics
from qbus.broker.telemetry import ClientTelemetry
from qbus.broker.telemetry.clients import NOBODY
from qbus.clock import ManualClock
from qbus.config import BrokerConfig
from qbus.errors import ApiError, ErrorCode
from qbus.records import Compression
from qbus.records.compression import compress

from .protobuf import attribute, data, double, gauge, text

INTERVAL_MS = 10_000
METRICS = data(
    gauge("org.apache.kafka.consumer.lag", attribute(7, "topic", text(1, "t")) + double(4, 3.0))
)


class World:
    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        stated = {
            "telemetry.metrics": "org.apache.kafka.",
            "telemetry.push.interval.ms": INTERVAL_MS,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.config = BrokerConfig(stated)
        self.telemetry = ClientTelemetry(self.config, self.clock)
        self.id = self.telemetry.subscribe(NOBODY, "c", "java/4.0")

    async def push(
        self, payload: bytes = METRICS, *, of: bytes | None = None, **other: Any
    ) -> None:
        arguments: dict[str, Any] = {
            "subscription_id": self.telemetry.subscription.id,
            "codec": Compression.NONE,
            "client_id": "c",
            "software": "java/4.0",
            "is_last": False,
            **other,
        }
        instance = self.id if of is None else of
        await self.telemetry.push(instance, data=payload, **arguments)

    async def refused(self, *arguments: Any, **keywords: Any) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            await self.push(*arguments, **keywords)
        return caught.value.code

    def later(self, intervals: float = 1) -> None:
        self.clock.advance(intervals * INTERVAL_MS / 1000)

    def shown(self) -> dict[tuple[str, ...], float]:
        return {tuple(labels): value for labels, value in self.telemetry.samples()}


def test_a_client_without_an_id_gets_one_and_keeps_it() -> None:
    world = World()
    assert world.id != NOBODY
    assert world.telemetry.subscribe(NOBODY, "c", "s") != world.id
    assert world.telemetry.subscribe(world.id, "c", "s") == world.id


def test_by_default_clients_push_nothing() -> None:
    telemetry = ClientTelemetry(BrokerConfig(), ManualClock())
    assert telemetry.subscription.metrics == ()
    assert telemetry.subscription.interval_ms == 300_000


async def test_a_change_of_what_is_wanted_changes_the_subscription() -> None:
    world = World()
    before = world.telemetry.subscription
    world.config.set_dynamic({"telemetry.metrics": "org.apache.kafka.producer."}, {})
    after = world.telemetry.subscription
    assert after.metrics == ("org.apache.kafka.producer.",)
    assert after.id != before.id
    assert await world.refused(subscription_id=before.id) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID


@pytest.mark.parametrize("metrics", ["a", "b", "c,d", "*"])
def test_a_subscription_s_id_fits_its_field(metrics: str) -> None:
    number = World(telemetry_metrics=metrics).telemetry.subscription.id
    assert -(2**31) <= number < 2**31


@pytest.mark.parametrize("codec", Compression)
async def test_what_is_pushed_is_shown(codec: Compression) -> None:
    world = World()
    await world.push(compress(codec, METRICS), codec=codec)
    expected = ("c", world.id.hex(), "org.apache.kafka.consumer.lag", "topic=t")
    assert world.shown() == {expected: 3.0}
    assert world.telemetry.instances() == 1
    assert (world.telemetry.pushes, world.telemetry.refusals) == (1, 0)


async def test_a_later_push_replaces_the_one_before() -> None:
    world = World()
    await world.push()
    world.later()
    await world.push(data(gauge("m", double(4, 4.0))))
    assert world.shown() == {("c", world.id.hex(), "m", ""): 4.0}


async def test_a_client_that_pushes_too_often_is_told_to_wait() -> None:
    world = World()
    await world.push()
    world.later(0.2)
    assert await world.refused() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert world.telemetry.refusals == 1
    world.later(0.5)
    await world.push()


async def test_the_last_push_may_come_early_and_ends_it() -> None:
    world = World()
    await world.push()
    await world.push(is_last=True)
    assert world.shown() == {}
    world.later()
    assert await world.refused() is ErrorCode.INVALID_REQUEST


async def test_a_client_that_is_silent_is_forgotten() -> None:
    world = World()
    await world.push()
    world.later(2)
    assert world.shown()
    world.later(1.5)
    assert world.shown() == {}
    assert world.telemetry.instances() == 0


async def test_only_so_many_clients_are_known() -> None:
    world = World()
    for number in range(1100):
        await world.push(of=number.to_bytes(16) if number else b"\1" * 16)
    assert len(world.shown()) == 1000


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"of": NOBODY}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 5}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"codec": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"payload": b"\x0a\x05a"}, ErrorCode.INVALID_RECORD),
        ({"payload": b"junk", "codec": Compression.ZSTD}, ErrorCode.INVALID_RECORD),
        ({"payload": bytes(1024 * 1024 + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        (
            {"payload": compress(Compression.GZIP, bytes(4 * 1024**2 + 1)), "codec": 1},
            ErrorCode.INVALID_RECORD,
        ),
    ],
)
async def test_what_is_refused(arguments: dict[str, Any], code: ErrorCode) -> None:
    world = World()
    assert await world.refused(**arguments) is code
    assert world.shown() == {}


@pytest.mark.parametrize(
    "refused",
    [
        {"subscription_id": 5},
        {"codec": 9},
        {"payload": bytes(1024 * 1024 + 1)},
        {"codec": 9, "is_last": True},
    ],
)
async def test_after_a_push_that_was_not_read_the_client_may_push_at_once(
    refused: dict[str, Any],
) -> None:
    world = World()
    await world.refused(**refused)
    await world.push()
    assert len(world.shown()) == 1


async def test_after_one_that_was_read_in_vain_it_has_to_wait() -> None:
    world = World()
    assert await world.refused(b"\x0a\x05a") is ErrorCode.INVALID_RECORD
    assert await world.refused() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.later()
    await world.push()


async def test_it_is_among_the_broker_s_metrics() -> None:
    world = World()
    metrics = Metrics()
    world.telemetry.register(metrics)
    await world.push()
    families = {family.name: family for family in metrics.collect()}
    (sample,) = families["qbus_client_metric"].samples
    assert sample.labels["client_id"] == "c"
    assert sample.value == 3.0
    assert families["qbus_client_telemetry_clients"].samples[0].value == 1
    assert families["qbus_client_telemetry_pushes"].samples[0].value == 1


async def test_of_what_nobody_asked_for_nothing_is_read() -> None:
    world = World(telemetry_metrics="")
    await world.push(b"junk", codec=Compression.ZSTD)
    assert world.shown() == {}


async def test_nor_of_the_last_push() -> None:
    world = World()
    await world.push(b"junk", codec=Compression.ZSTD, is_last=True)
    assert world.shown() == {}


async def test_a_push_that_is_read_when_the_last_one_came_is_not_shown() -> None:
    world = World()
    first = asyncio.ensure_future(world.push())
    await asyncio.sleep(0)
    await world.push(is_last=True)
    await first
    assert world.shown() == {}


def tiny_blocks(count: int) -> bytes:
    """A frame of snappy of so many empty blocks."""
    return b"\x82SNAPPY\0" + bytes(8) + b"\0\0\0\1\0" * count


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        (Compression.NONE, b"\x0a\0" * 500_000),
        (Compression.NONE, data(*[gauge("m")] * 70_000)),
        (Compression.ZSTD, compress(Compression.ZSTD, b"\x0a\0" * 2_000_000)),
        (Compression.GZIP, compress(Compression.GZIP, bytes(50 * 1024**2))),
        (Compression.SNAPPY, tiny_blocks(200_000)),
    ],
    ids=("fields", "metrics", "compressed fields", "bomb", "blocks"),
)
async def test_what_is_costly_to_read_is_refused_and_keeps_nobody_waiting(
    codec: Compression, payload: bytes
) -> None:
    world = World()
    before = time.thread_time()
    assert await world.refused(payload, codec=codec) is ErrorCode.INVALID_RECORD
    assert time.thread_time() - before < 0.02  # of the event loop; reading takes many times that


async def test_too_many_pushes_at_once_are_refused() -> None:
    world = World()
    ids = [number.to_bytes(16) for number in range(1, 31)]
    told = await asyncio.gather(*(world.refused(b"junk", of=one) for one in ids))
    assert Counter(told) == {
        ErrorCode.INVALID_RECORD: 8,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED: 22,
    }
    await world.push()
    assert world.shown()


async def test_clients_that_leave_meanwhile_make_no_room_for_more() -> None:
    world = World()
    costly = data(*[gauge("m")] * 12_000)
    ids = [number.to_bytes(16) for number in range(1, 9)]
    left = [asyncio.ensure_future(world.push(costly, of=one)) for one in ids]
    await asyncio.sleep(0)
    for one in left:
        one.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    assert await world.refused() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
