"""Throttled replicas fetch at no more than their rate on average."""

import pytest

from qbus.broker.replicator.throttle import Throttle
from qbus.clock import ManualClock
from qbus.config import BrokerConfig
from tests.support.waiting import eventually

from .conftest import MakeScene
from .scene import US, Known, log_end


@pytest.mark.parametrize(
    ("replicas", "throttled"), [("", []), ("*", [0, 1]), ("0:1", [0]), ("0:2,1:1", [1])]
)
def test_topic_configuration_selects_the_throttled_replicas(
    replicas: str, throttled: list[int]
) -> None:
    config = BrokerConfig()
    known = Known(config)
    if replicas:
        known.set(follower_replication_throttled_replicas=replicas)
    throttle = Throttle(US, config, known, ManualClock())
    assert [index for index in range(2) if throttle.applies("orders", index)] == throttled
    assert not throttle.applies("gone", 0)


def test_the_rate_is_dynamic_broker_configuration() -> None:
    config = BrokerConfig()
    throttle = Throttle(US, config, Known(config), ManualClock())
    throttle.spend(10_000)
    assert throttle.wait() < 0.001, "no rate is set"
    config.set_dynamic({}, {"follower.replication.throttled.rate": "1000"})
    throttle.spend(10_000)
    assert throttle.wait() > 1


def test_at_rate_0_the_rate_is_read_again_after_a_second() -> None:
    config = BrokerConfig()
    throttle = Throttle(US, config, Known(config), ManualClock())
    config.set_dynamic({}, {"follower.replication.throttled.rate": "0"})
    assert throttle.wait() == 1.0


async def test_a_lagging_throttled_replica_waits(make_scene: MakeScene) -> None:
    scene = make_scene(replica_fetch_max_bytes="1")
    scene.config.set_dynamic({}, {"follower.replication.throttled.rate": "1"})
    scene.known.set(follower_replication_throttled_replicas="0:1")
    leader = await scene.leader()
    throttled, free = scene.partition(0), scene.partition(1)
    for partition in (throttled, free):
        led = leader.lead(partition.index)
        led.append(b"a")
        led.high_watermark = 5  # it has more to come
        scene.follow(partition)
    await eventually(lambda: log_end(throttled) == log_end(free) == 1)
    for partition in (throttled, free):
        led = leader.partitions[bytes(16), partition.index]
        led.append(b"b")
        led.high_watermark = 5
    leader.moved()
    await eventually(lambda: log_end(free) == 2)
    assert log_end(throttled) == 1
    scene.config.set_dynamic({}, {})


async def test_a_throttled_in_sync_replica_does_not_wait(make_scene: MakeScene) -> None:
    scene = make_scene()
    scene.config.set_dynamic({}, {"follower.replication.throttled.rate": "1"})
    scene.known.set(follower_replication_throttled_replicas="*")
    leader = await scene.leader()
    led = leader.lead()
    partition = scene.partition()
    scene.follow(partition)
    for _ in range(3):
        led.append(b"a" * 1000)
        leader.moved()
        await scene.copied(partition, leader)
