"""Datacenters: clusters with a ZooKeeper each, their writers, and the mirrors into them."""

import random
from collections.abc import Mapping
from pathlib import Path

from qbus import Producer
from qbus.clients.blocking.admin import Admin
from tests.support.background import Background
from tests.support.broker_process import BrokerProcess
from tests.support.cluster_view import View
from tests.support.far_proxy import Link
from tests.support.mirror_command import MirrorCommand
from tests.support.server_process import ServerGroup, ServerProcess
from tests.support.waiting import wait_until
from tests.support.zookeeper_process import ZooKeeperProcess

TOPIC = "orders"
PARTITIONS = 3

_OPTIONS = {
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
_CONFIG = {"segment.bytes": "65536", "index.interval.bytes": "1024"}
_MIRROR = """
topics = ["(.*[.])?orders"]
topics_at_target = {{ discovery_interval_ms = 500 }}
groups = {{ interval_ms = 500 }}
transfer = {{ session_timeout_ms = 4000, request_timeout_ms = 10000 }}
target = {{ idc = "{idc}", bootstrap = "{bootstrap}" }}
"""
_SOURCE = """
[[source]]
idc = "{idc}"
bootstrap = "{bootstrap}"
relay = {relay}
"""


class Idc(ServerGroup):
    """A cluster of ``count`` brokers, started on entry and killed on exit."""

    def __init__(self, name: str, directory: Path, count: int) -> None:
        self.name = name
        self.zookeeper = ZooKeeperProcess()
        self.brokers: dict[int, BrokerProcess] = {}
        options = [word for pair in _OPTIONS.items() for word in ("-o", "=".join(pair))]
        for node in range(1, count + 1):
            self.brokers[node] = BrokerProcess(
                directory / f"{name}-{node}",
                *("--node-id", str(node)),
                *("--zookeeper", f"{self.zookeeper.bootstrap}/qbus"),
                *options,
            )
        self.view = View(self.brokers)

    @property
    def bootstrap(self) -> str:
        """The bootstrap for clients in this datacenter."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def ports(self) -> list[int]:
        """The addresses of its brokers."""
        return [broker.port for broker in self.brokers.values()]

    @property
    def stages(self) -> list[list[ServerProcess]]:
        return [[self.zookeeper], [*self.brokers.values()]]

    def start(self) -> None:
        """Start the cluster, and create the topic."""
        super().start()
        wait_until(self.view.are_all_there, f"the brokers of {self.name}", 60)
        count = len(self.brokers)
        with Admin(self.bootstrap) as admin:
            admin.create_topic(
                TOPIC,
                partitions=PARTITIONS,
                replication_factor=count,
                config=_CONFIG | {"min.insync.replicas": str(min(count, 2))},
            )


class Writer(Background):
    """Writes to a datacenter's topic at a moderate rate, in all compressions, until stopped."""

    def __init__(self, idc: Idc, seed: int) -> None:
        self.acknowledged = 0
        """The number of acknowledged records."""
        self._idc = idc
        self._random = random.Random(seed)
        super().__init__()

    def run(self) -> None:
        while not self.over.is_set():
            compression = self._random.choice(("none", "gzip", "lz4", "zstd"))
            with Producer(self._idc.bootstrap, compression=compression) as producer:
                for _ in range(self._random.randrange(5, 30)):
                    self._write_some(producer)
                    if self.over.wait(self._random.uniform(0, 0.05)):
                        break

    def _write_some(self, producer: Producer) -> None:
        count = self._random.randrange(1, 40)
        values = [
            b"%s-%d-" % (self._idc.name.encode(), self.acknowledged + number)
            + b"x" * self._random.randrange(200)
            for number in range(count)
        ]
        delivery = producer.send_many(TOPIC, values)
        producer.flush()
        delivery.result()
        self.acknowledged += count


def mirror(target: Idc, sources: Mapping[str, Link], directory: Path, number: int) -> MirrorCommand:
    """Return a process that mirrors ``sources`` into a datacenter, not started yet."""
    text = _MIRROR.format(idc=target.name, bootstrap=target.bootstrap) + "".join(
        _SOURCE.format(idc=idc, bootstrap=way.bootstrap, relay="true")
        for idc, way in sources.items()
    )
    path = directory / f"mirror-{target.name}-{number}.toml"
    path.write_text(text)
    return MirrorCommand("--config", str(path), "--name", f"{target.name}-{number}")
