"""Three brokers and a real ZooKeeper: the controller, leaders, and dead brokers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from tests.support import zookeeper_process
from tests.support.qbus_cluster import QbusCluster
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .sessions import kazoo_client

pytestmark = pytest.mark.integration

OPTIONS = ("-o", "zookeeper.session.timeout.ms=4000", "-o", "min.insync.replicas=2")
TOPIC, PARTITIONS = "t", 6
QUIET = {"log_level": 0}


class Control:
    """A cluster, and its state in ZooKeeper."""

    def __init__(self, cluster: QbusCluster, znodes: KazooClient) -> None:
        self.cluster = cluster
        self.znodes = znodes

    def document(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.znodes.get(path)[0])
        return found

    @property
    def live(self) -> set[int]:
        return {int(name) for name in self.znodes.get_children("/brokers/ids")}

    @property
    def controller(self) -> int:
        return int(self.document("/controller")["brokerid"])

    @property
    def controller_epoch(self) -> int:
        return int(self.znodes.get("/controller_epoch")[0])

    def states(self) -> list[dict[str, Any]]:
        below = f"/brokers/topics/{TOPIC}/partitions"
        return [self.document(f"{below}/{index}/state") for index in range(PARTITIONS)]

    def leaders(self) -> set[int]:
        return {state["leader"] for state in self.states()}

    def in_sync(self) -> set[int]:
        return {replica for state in self.states() for replica in state["isr"]}

    def create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, **QUIET})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)

    def produce(self, count: int) -> None:
        errors: list[object] = []
        producer = ck.Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": -1, **QUIET})
        for number in range(count):
            producer.produce(TOPIC, str(number), on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
        assert errors == [None] * count


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    skip_because_of(zookeeper_process.missing())
    with (
        QbusCluster(tmp_path, *OPTIONS) as cluster,
        kazoo_client(f"{cluster.zookeeper_address}/qbus") as znodes,
    ):
        yield Control(cluster, znodes)


def test_a_dead_controller_is_replaced_and_what_it_led_is_led_by_others(control: Control) -> None:
    control.create_topic()
    assert control.leaders() == {1, 2, 3}
    dead, epoch = control.controller, control.controller_epoch
    others = {1, 2, 3} - {dead}
    control.cluster.brokers[dead].kill()
    wait_until(lambda: control.leaders() <= others, "others to lead")
    wait_until(lambda: control.in_sync() <= others, "the dead one to be in sync no more")
    assert control.controller in others
    assert control.controller_epoch > epoch
    assert {state["controller_epoch"] for state in control.states()} >= {control.controller_epoch}
    control.produce(30)
    before = int(control.znodes.get(f"/brokers/epochs/{dead}")[1].version)
    control.cluster.brokers[dead].start()
    assert control.document(f"/brokers/ids/{dead}")["epoch"] == before + 1
    wait_until(lambda: all(len(s["isr"]) == 3 for s in control.states()), "all to be in sync")


def test_a_broker_restarted_at_once_leads_in_a_new_epoch(
    control: Control,
) -> None:
    """The broker restarts before its session ends."""
    control.create_topic()
    before = [state["leader_epoch"] for state in control.states()]
    led = [state["leader"] == 1 for state in control.states()]
    control.cluster.brokers[1].kill()
    control.cluster.brokers[1].start()
    wait_until(lambda: -1 not in control.leaders(), "everything to be led")
    for state, epoch, was_led in zip(control.states(), before, led, strict=True):
        assert not was_led or state["leader_epoch"] > epoch
    assert "waiting for the end of its session" not in control.cluster.brokers[1].log_text()
    control.produce(30)


def test_a_stopped_broker_hands_over_before_it_exits(control: Control) -> None:
    control.create_topic()
    control.produce(30)
    controller_id, epoch = control.controller, control.controller_epoch
    control.cluster.brokers[controller_id].stop()
    others = {1, 2, 3} - {controller_id}
    assert control.live == others
    assert control.leaders() <= others
    assert "; 0 have no other replica to lead" in control.cluster.brokers[controller_id].log_text()
    wait_until(lambda: control.controller_epoch > epoch, "another controller")
    wait_until(lambda: control.in_sync() <= others, "it to be in sync no more")
    control.produce(30)
