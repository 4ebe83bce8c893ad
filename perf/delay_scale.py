"""Ten million delayed records: memory, disk, restarts, failover, and what the others cost.

They are due at random within a day that begins in an hour, 100 bytes each, in three partitions.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from perf import delay_load, quiet, rdkafka
from perf.delay_load import PARTITIONS
from perf.report import Figure
from perf.servers import MEMORY, resident_mb
from tests.support.broker_process import BrokerProcess
from tests.support.cluster_view import View
from tests.support.qbus_cluster import QbusCluster
from tests.support.waiting import wait_until

PENDING = (0, 1_000_000, 10_000_000)
SIZE = 100
DELIVERED = 100_000
_DELIVERY_MS = 10_000
_LEAD_MS = 4_000
_WARM_UP = 1_000
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_CLUSTER_PENDING = 1_000_000
_PLAIN_HEADER = "test-deliver-at"  # as long as the one that delays
# Timestamps tell when a broker delivered, before clients found it again.
_ENABLED = {"qbus.delay.enable": "true", "message.timestamp.type": "LogAppendTime"}
_PATIENCE_S = 120.0
_SESSION = "zookeeper.session.timeout.ms=9000"


def run(_rounds: int, scale: float) -> list[Figure]:
    """Fill one broker step by step, and then restart it, cleanly and after SIGKILL."""
    figures: list[Figure] = []

    def add(case: str, unit: str, value: float) -> None:
        figure = Figure(case, unit, lower_is_better=True)
        figure.add("qbus", value)
        figures.append(figure)

    steps = [int(number * scale) for number in PENDING]
    with tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory:
        data = Path(directory)
        with BrokerProcess(data, *MEMORY.qbus) as broker:
            plain = _disk_of_plain(broker, data)
            rdkafka.create_topic(broker.bootstrap, "held", PARTITIONS, **_ENABLED)
            _deliver(broker, _WARM_UP)  # wakes what is loaded at first use
            idle = resident_mb(broker)
            seconds = stored = memory = 0.0
            for pending, last in zip(steps, [0, *steps[:-1]], strict=True):
                before, resident = _disk(data, "held"), resident_mb(broker)
                seconds += _hold(broker.bootstrap, "held", pending - last)
                stored += _disk(data, "held") - before
                memory += resident_mb(broker) - resident
                found = _deliver(broker, DELIVERED)
                case = f"delivering {DELIVERED:,} in 10 s beside {pending:,} others"
                add(f"{case}: processor time of the broker", "s", found["broker_s"])
                add(f"{case}: late, p99", "ms", found["p99"])
            case = f"{pending:,} held back"
            add(f"{case}: storing them", "s", seconds)
            add(f"{case}: memory per million", "MB", memory * 1e6 / pending)
            add(f"{case}: on disk each", "B", stored / pending)
            add(f"{case}: on disk each, beyond a plain record", "B", stored / pending - plain)
            for how, end in (("clean", broker.stop), ("kill -9", broker.kill)):
                started, delivered, read = _first_after_restart(broker, end)
                add(f"{case}: restart, {how}", "s", started)
                add(f"{case}: start to the first delivery, {how}", "s", delivered)
                add(f"{case}: start to the first delivery read, {how}", "s", read)
                grown = resident_mb(broker) - idle
                add(f"{case}: memory per million after that", "MB", grown * 1e6 / pending)
    return figures


def run_cluster(_rounds: int, scale: float) -> list[Figure]:
    """Kill the leader of a partition among three brokers that hold back a million records."""
    figures: list[Figure] = []
    pending = int(_CLUSTER_PENDING * scale)
    with (
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory,
        QbusCluster(Path(directory), *MEMORY.qbus, "-o", _SESSION) as cluster,
    ):
        for number in (0, pending):
            topic = f"held-{number}"
            rdkafka.create_topic(cluster.bootstrap, topic, PARTITIONS, 3, **_ENABLED)
            _await_replicas(cluster, topic)
            before = {node: resident_mb(one) for node, one in cluster.brokers.items()}
            _hold(cluster.bootstrap, topic, number)
            grown = [resident_mb(one) - before[node] for node, one in cluster.brokers.items()]
            name = f"leader killed to the first delivery, {number:,} held back, sessions of 9 s"
            taken = _first_after_failover(cluster, topic)
            for case, seconds in zip((name, f"{name}, read"), taken, strict=True):
                figure = Figure(case, "s", lower_is_better=True)
                figure.add("qbus", seconds)
                figures.append(figure)
            if number:
                figure = Figure("memory per million, of each of three brokers", "MB")
                figure.qbus = [one * 1e6 / number for one in grown]
                figures.append(figure)
    return figures


def _hold(bootstrap: str, topic: str, count: int) -> float:
    """Have so many more held back; the seconds that took."""
    if count <= 0:
        return 0.0
    options = {"count": count, "lead_ms": _HOUR_MS, "spread_ms": _DAY_MS, "size": SIZE}
    return delay_load.run(bootstrap, topic=topic, **options)["seconds"]


def _deliver(broker: BrokerProcess, count: int) -> dict[str, float]:
    """Deliver so many from the topic with all that it holds; see :func:`perf.delay_load.load`."""
    found = delay_load.run(
        broker.bootstrap,
        topic="held",
        count=count,
        lead_ms=_LEAD_MS,
        spread_ms=_DELIVERY_MS if count > _WARM_UP else 500,
        size=SIZE,
        wait=True,
        broker=broker.pid,
    )
    assert found["received"] == count, found
    assert found["early"] == 0, found
    return found


def _disk_of_plain(broker: BrokerProcess, data: Path) -> float:
    """The bytes that a record takes whose header does not delay it."""
    rdkafka.create_topic(broker.bootstrap, "plain", PARTITIONS)
    options = {"count": DELIVERED, "lead_ms": _HOUR_MS, "spread_ms": _DAY_MS, "size": SIZE}
    delay_load.run(broker.bootstrap, topic="plain", header=_PLAIN_HEADER, **options)
    return _disk(data, "plain") / DELIVERED


def _disk(data: Path, topic: str) -> int:
    """The bytes of a topic's files, but for what indexes hold in reserve."""
    files = (one for one in data.rglob(f"{topic}-*/**/*") if one.is_file())
    return sum(one.stat().st_size for one in files if not one.name.endswith("index"))


def _first_after_restart(
    broker: BrokerProcess, end: Callable[[], None]
) -> tuple[float, float, float]:
    """Seconds from the start until the broker answers, and until the first delivery and its reader.

    That is of a record which was due while the broker was down.
    """
    with closing(_Reader(broker.bootstrap, "held", [0])) as reader:
        due = _send_due(broker.bootstrap, "held", [0], after_ms=500)
        end()
        time.sleep(max(due / 1000 - time.time(), 0) + 0.2)
        began = time.time()
        broker.start()
        serves = time.time()
        delivered = reader.wait(due)
        return serves - began, delivered - began, time.time() - began


def _first_after_failover(cluster: QbusCluster, topic: str) -> tuple[float, float]:
    """Seconds from SIGKILL of a leader until all is delivered that is due right then, and read."""
    view = View(cluster.brokers)
    leader = view.leader(topic)
    led = [index for index in range(PARTITIONS) if view.leader(topic, index) == leader]
    with closing(_Reader(cluster.bootstrap, topic, led)) as reader:
        due = _send_due(cluster.bootstrap, topic, led, after_ms=1_500)
        time.sleep(due / 1000 - time.time() - 0.05)
        cluster.brokers[leader].kill()
        killed = time.time()
        delivered = reader.wait(due)
        read = time.time()
    cluster.brokers[leader].start()
    _await_replicas(cluster, topic)
    return delivered - killed, read - killed


def _await_replicas(cluster: QbusCluster, topic: str) -> None:
    view = View(cluster.brokers)
    wait_until(lambda: view.are_whole([topic], PARTITIONS), "its replicas", _PATIENCE_S)


def _send_due(bootstrap: str, topic: str, partitions: Sequence[int], after_ms: int) -> int:
    """Have a record held back in each of these partitions; when they are due, in milliseconds."""
    producer = Producer(quiet.at(bootstrap))
    producer.list_topics(topic, timeout=30)
    due = time.time_ns() // 1_000_000 + after_ms
    for partition in partitions:
        text = str(due)
        producer.produce(topic, text, partition=partition, headers=[("qbus-deliver-at", text)])
    assert producer.flush(30) == 0
    return due


class _Reader:
    """A consumer that is at the ends of some partitions already, and tries again at once."""

    def __init__(self, bootstrap: str, topic: str, partitions: Sequence[int]) -> None:
        self._consumer = Consumer(
            {
                **quiet.at(bootstrap),
                "group.id": "perf",
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "topic.metadata.refresh.fast.interval.ms": 50,
            }
        )
        places = [TopicPartition(topic, index) for index in partitions]
        for place in places:
            place.offset = self._consumer.get_watermark_offsets(place, timeout=30)[1]
        self._consumer.assign(places)
        self._left = len(places)

    def wait(self, due: int) -> float:
        """Read the records that are due then, one of each partition; when the last was delivered.

        In seconds since 1970, by the clock of the broker.
        """
        deadline = time.monotonic() + _PATIENCE_S
        delivered = 0
        while self._left and time.monotonic() < deadline:
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._left -= message.value() == b"%d" % due
                delivered = max(delivered, message.timestamp()[1])
        assert not self._left, f"not delivered within {_PATIENCE_S} s"
        return delivered / 1000

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()
