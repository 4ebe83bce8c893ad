"""How long a partition takes no records after its leader was killed."""

import time

from confluent_kafka import KafkaError, Message, Producer

from perf import quiet
from perf.cluster import create_replicated
from perf.report import Figure
from perf.servers import MEMORY, Cluster, Setup, both_clusters
from tests.support.cluster_view import View
from tests.support.waiting import wait_until

#: What either is given to notice that a broker is gone: Kafka's default, and a short one.
SESSIONS = (9.0, 3.0)
_EVERY = 0.01
_PATIENCE = 120.0


def run(rounds: int, scale: float) -> list[Figure]:
    """SIGKILL the leader; the time until a record that was sent after that is acknowledged."""
    figures: list[Figure] = []
    for seconds in SESSIONS if scale >= 1 else SESSIONS[-1:]:
        figure = Figure(
            f"leader killed to next acknowledged record, sessions of {seconds:g} s",
            "s",
            lower_is_better=True,
        )
        with both_clusters(_setup(seconds)) as clusters:
            for turn in range(rounds):
                for cluster in clusters:
                    figure.add(cluster.name, _fail_over(cluster, f"failover-{turn}"))
        figures.append(figure)
    return figures


def _setup(seconds: float) -> Setup:
    milliseconds = f"{seconds * 1000:.0f}"
    session = f"zookeeper.session.timeout.ms={milliseconds}"
    kafka = {
        "broker.session.timeout.ms": milliseconds,
        "broker.heartbeat.interval.ms": f"{min(seconds * 1000 / 4, 2000):.0f}",
    }
    return Setup(qbus=(*MEMORY.qbus, "-o", session), kafka=kafka)


def _fail_over(cluster: Cluster, topic: str) -> float:
    create_replicated(cluster, topic, partitions=1)
    view = View(cluster.brokers)
    sending = _Sending(cluster.bootstrap, topic)
    wait_until(lambda: sending.send() and sending.acknowledged, "the first record", _PATIENCE)
    leader = view.leader(topic)
    cluster.brokers[leader].kill()
    killed = time.monotonic()
    wait_until(lambda: sending.send() and sending.acknowledged > killed, "a record", _PATIENCE, 0)
    seconds = time.monotonic() - killed
    sending.finish()
    cluster.brokers[leader].start()
    wait_until(lambda: view.are_whole([topic], 1), "its replicas", _PATIENCE)
    return seconds


class _Sending:
    """A record every now and then, and when the newest was sent that is acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged = 0.0
        self._topic = topic
        self._producer = Producer({**quiet.at(bootstrap), "acks": "all", "linger.ms": 0})

    def send(self) -> bool:
        """Send one; always true."""
        sent = time.monotonic()

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.acknowledged = max(self.acknowledged, sent)

        self._producer.produce(self._topic, b"record", partition=0, on_delivery=on_delivery)
        self._producer.poll(_EVERY)
        return True

    def finish(self) -> None:
        """Wait for the rest."""
        self._producer.flush(_PATIENCE)
