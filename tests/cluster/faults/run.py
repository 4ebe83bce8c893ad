"""One run: a topic under load, faults, and in the end an audit of every record."""

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.history.checker import check
from tests.history.history import History, Outcome
from tests.history.process import LoadProcess
from tests.history.reading import read_out
from tests.support.cluster_view import View
from tests.support.namespaces import Network
from tests.support.qbus_cluster import QbusCluster
from tests.support.waiting import wait_until

from .probe import create_topic, send_to_all
from .replicas import differences
from .targets import Cluster

PARTITIONS = 3
_PATIENCE = 120.0
"""Seconds for elections and for replicas to get in sync: machines may be slow."""

_WITHOUT_ZOOKEEPER = "qbus: no ZooKeeper answers at"

CLIENTS = (("confluent", "qbus"), ("confluent", "qbus"))
"""Producers and consumers of a short run."""
ALL_CLIENTS = (
    ("confluent", "qbus", "kafka-python", "confluent-relaxed"),
    ("confluent", "qbus", "kafka-python"),
)


class Run:
    """Injects faults, heals them, and audits what the clients saw meanwhile."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        seed: int | None = None,
        clients: tuple[Sequence[str], Sequence[str]] = CLIENTS,
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.seed = random.randrange(2**32) if seed is None else seed
        self.random = random.Random(self.seed)
        self.view = View(cluster.brokers)
        self.network: Network | None = None
        self._probes: list[History] = []
        self._load = LoadProcess(cluster.bootstrap, topic, PARTITIONS, *clients, rate=100)
        print(f"seed {self.seed}")

    def start(self) -> None:
        """Create the topic and start the load."""
        wait_until(self.view.are_all_there, "all brokers", _PATIENCE)
        create_topic(self.cluster.bootstrap, self.topic, PARTITIONS)
        self.wait_whole()
        self._load.start()
        self._load.wait_busy()

    def partitions(self) -> dict[int, Any]:
        """The topic's partitions, as a broker describes them."""
        return self.view.partitions(self.topic)

    def leader(self) -> int:
        """The leader of the first partition."""
        return self.view.leader(self.topic)

    def follower(self) -> int:
        """A follower of the first partition."""
        found = self.partitions()[0]
        return next(int(node) for node in found.replica_nodes if node != found.leader_id)

    # Faults

    def kill(self, *nodes: int) -> None:
        """SIGKILL."""
        for node in nodes:
            self.cluster.brokers[node].kill()

    def start_brokers(self, *nodes: int) -> None:
        """Start killed brokers."""
        for node in nodes:
            self.cluster.brokers[node].start(wait=False)
        for node in nodes:
            self.cluster.brokers[node].wait_ready()

    def stop(self, *nodes: int) -> None:
        """SIGSTOP: alive, and silent."""
        for node in nodes:
            self.cluster.brokers[node].send_signal(signal.SIGSTOP)

    def resume(self, *nodes: int) -> None:
        """SIGCONT."""
        for node in nodes:
            self.cluster.brokers[node].send_signal(signal.SIGCONT)

    def heal(self) -> None:
        """End all faults."""
        if self.network is not None:
            self.network.heal()
        if isinstance(self.cluster, QbusCluster):  # brokers do not wait for long when they start
            for zookeeper in self.cluster.zookeepers:
                wait_until(zookeeper.serves, f"{zookeeper.bootstrap} to serve", _PATIENCE)
        dead = [node for node, broker in self.cluster.brokers.items() if not broker.alive]
        self.resume(*(node for node in self.cluster.brokers if node not in dead))
        self.start_brokers(*dead)

    # Waiting

    def wait_deposed(self, node: int) -> None:
        """Wait until other brokers lead every partition that ``node`` led."""
        with self._timed(f"others lead what {node} led"):
            wait_until(
                lambda: self.view.are_led([self.topic], PARTITIONS, without=node),
                f"leaders other than {node}",
                _PATIENCE,
            )

    def wait_out_of_sync(self, node: int) -> None:
        """Wait until no other broker has ``node`` in an ISR."""

        def is_out() -> bool:
            found = self.view.partitions(self.topic, without=node)
            return len(found) == PARTITIONS and all(
                node == part.leader_id or node not in part.isr_nodes for part in found.values()
            )

        with self._timed(f"{node} is out of sync"):
            wait_until(is_out, f"{node} to be out of sync", _PATIENCE)

    def wait_served(self) -> None:
        """Wait until every partition accepts records."""
        with self._timed("all partitions accept records"):
            where = self.cluster.bootstrap, self.topic, range(PARTITIONS)
            self._probes.append(send_to_all(*where, _PATIENCE))

    def wait_whole(self) -> None:
        """Wait until every partition has all its replicas in sync."""
        with self._timed("all replicas are in sync"):
            wait_until(self._is_whole, "replicas in sync", _PATIENCE)

    def _is_whole(self) -> bool:
        self._start_those_without_zookeeper()
        return self.view.are_whole([self.topic], PARTITIONS)

    def _start_those_without_zookeeper(self) -> None:
        """Start brokers that gave up, as a supervisor does; not those that died otherwise.

        A broker that was cut from ZooKeeper may give up just when the network is healed.
        """
        for broker in self.cluster.brokers.values():
            if not broker.alive and _WITHOUT_ZOOKEEPER in broker.log_text().splitlines()[-1]:
                broker.start(wait=False)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        print(f"{what} after {time.monotonic() - started:.1f} s")

    # The audit

    def conclude(self) -> History:
        """End the faults and the load; fail unless every promise was kept."""
        self.heal()
        self.wait_whole()
        told = self._load.finish()
        self.wait_served()  # every acknowledged record is below these
        where = self.cluster.bootstrap, self.topic, range(PARTITIONS)
        history = History.merged([told, *self._probes, read_out(*where)])
        report = check(history)
        print(report)
        assert not report.findings, str(report)
        assert history.told(Outcome.OK) > 100
        for partition, end in history.ends.items():
            self._compare(partition, end)
        return history

    def close(self) -> None:
        """End the load."""
        self._load.kill()

    def _compare(self, partition: int, end: int) -> None:
        directories = {
            node: self.cluster.log_dir(node) / f"{self.topic}-{partition}"
            for node in self.cluster.brokers
        }
        found: list[str] = []

        def are_equal() -> bool:
            found[:] = differences(directories, end)
            return not found

        _wait(are_equal, f"equal replicas of {partition} below {end}", found)


def _wait(condition: Callable[[], bool], what: str, last: list[str]) -> None:
    try:
        wait_until(condition, what)
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *last[:5]])) from None
