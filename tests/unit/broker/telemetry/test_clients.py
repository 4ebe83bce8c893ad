"""Clients that push metrics: what they are told, what is taken, what is shown."""

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

    def push(self, payload: bytes = METRICS, *, of: bytes | None = None, **other: Any) -> None:
        arguments: dict[str, Any] = {
            "subscription_id": self.telemetry.subscription.id,
            "codec": Compression.NONE,
            "client_id": "c",
            "software": "java/4.0",
            "is_last": False,
            **other,
        }
        instance = self.id if of is None else of
        self.telemetry.push(instance, data=memoryview(payload), **arguments)

    def refused(self, *arguments: Any, **keywords: Any) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            self.push(*arguments, **keywords)
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


def test_a_change_of_what_is_wanted_changes_the_subscription() -> None:
    world = World()
    before = world.telemetry.subscription
    world.config.set_dynamic({"telemetry.metrics": "org.apache.kafka.producer."}, {})
    after = world.telemetry.subscription
    assert after.metrics == ("org.apache.kafka.producer.",)
    assert after.id != before.id
    assert world.refused(subscription_id=before.id) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID


@pytest.mark.parametrize("metrics", ["a", "b", "c,d", "*"])
def test_a_subscription_s_id_fits_its_field(metrics: str) -> None:
    number = World(telemetry_metrics=metrics).telemetry.subscription.id
    assert -(2**31) <= number < 2**31


@pytest.mark.parametrize("codec", Compression)
def test_what_is_pushed_is_shown(codec: Compression) -> None:
    world = World()
    world.push(compress(codec, METRICS), codec=codec)
    expected = ("c", world.id.hex(), "org.apache.kafka.consumer.lag", "topic=t")
    assert world.shown() == {expected: 3.0}
    assert world.telemetry.instances() == 1
    assert (world.telemetry.pushes, world.telemetry.refusals) == (1, 0)


def test_a_later_push_replaces_the_one_before() -> None:
    world = World()
    world.push()
    world.later()
    world.push(data(gauge("m", double(4, 4.0))))
    assert world.shown() == {("c", world.id.hex(), "m", ""): 4.0}


def test_a_client_that_pushes_too_often_is_told_to_wait() -> None:
    world = World()
    world.push()
    world.later(0.2)
    assert world.refused() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert world.telemetry.refusals == 1
    world.later(0.5)
    world.push()


def test_the_last_push_may_come_early_and_ends_it() -> None:
    world = World()
    world.push()
    world.push(is_last=True)
    assert world.shown() == {}
    world.later()
    assert world.refused() is ErrorCode.INVALID_REQUEST


def test_a_client_that_is_silent_is_forgotten() -> None:
    world = World()
    world.push()
    world.later(2)
    assert world.shown()
    world.later(1.5)
    assert world.shown() == {}
    assert world.telemetry.instances() == 0


def test_only_so_many_clients_are_known() -> None:
    world = World()
    for number in range(1100):
        world.push(of=number.to_bytes(16) if number else b"\1" * 16)
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
            {"payload": compress(Compression.GZIP, bytes(17 * 1024**2)), "codec": Compression.GZIP},
            ErrorCode.INVALID_RECORD,
        ),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], code: ErrorCode) -> None:
    world = World()
    assert world.refused(**arguments) is code
    assert world.shown() == {}


def test_it_is_among_the_broker_s_metrics() -> None:
    world = World()
    metrics = Metrics()
    world.telemetry.register(metrics)
    world.push()
    families = {family.name: family for family in metrics.collect()}
    (sample,) = families["qbus_client_metric"].samples
    assert sample.labels["client_id"] == "c"
    assert sample.value == 3.0
    assert families["qbus_client_telemetry_clients"].samples[0].value == 1
    assert families["qbus_client_telemetry_pushes"].samples[0].value == 1
