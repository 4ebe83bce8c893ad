"""Mixed load for a long time: no request, command or callback computes for 100 ms.

``QBUS_LOOP_MINUTES`` says for how long (60). All that held a loop for longer is printed, by
handler. What had the processor for that time fails the test, but for ``EXPECTED``; what only
waited for it, on a machine that others use too, does not.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka as ck
import pytest

import qbus
from tests.history.checker import check
from tests.history.history import History
from tests.history.process import LoadProcess
from tests.history.reading import read_out
from tests.support import delayed_load, zookeeper_process
from tests.support.job_load import JobLoad
from tests.support.ports import free_ports
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.server_process import WHOLE_LOG
from tests.support.slow_handlers import Slow, slow_handlers, table
from tests.support.tools import skip_because_of
from tests.transactions.load import TransactionalLoad

from .faults.probe import create_topic
from .faults.run import ALL_CLIENTS

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

MINUTES = float(os.environ.get("QBUS_LOOP_MINUTES", "60"))
PARTITIONS = 6
EXPECTED: dict[str, str] = {}
"""The handlers that may take longer, and why."""

# The limit, and what the watchdog may count too much: what the loop used since its last look.
_BUSY_S = 0.1 + 0.06


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[QbusCluster, list[int]]]:
    """Three brokers, and where they take jobs."""
    skip_because_of(zookeeper_process.missing())
    whole = QbusCluster(tmp_path, "-o", "group.initial.rebalance.delay.ms=0")
    ports = list(free_ports(len(NODES)))
    for broker, port in zip(whole.brokers.values(), ports, strict=True):
        broker.options = (*broker.options, "--disque-listen", f"127.0.0.1:{port}")
    with whole:
        yield whole, ports


@pytest.mark.timeout(MINUTES * 60 + 900)
def test_no_handler_holds_the_loop(cluster: tuple[QbusCluster, list[int]], tmp_path: Path) -> None:
    whole, ports = cluster
    bootstrap = whole.bootstrap
    for topic in ("plain", "transactions", "big"):
        create_topic(bootstrap, topic, PARTITIONS)
    for topic in ("delayed", "big-delayed"):
        delayed_load.create_topic(bootstrap, topic, 3, min_insync_replicas="2")
    plain = LoadProcess(bootstrap, "plain", PARTITIONS, *ALL_CLIENTS, rate=200)
    transactions = TransactionalLoad(bootstrap, "transactions", PARTITIONS, clients=("qbus",) * 3)
    jobs = JobLoad(tmp_path, [("127.0.0.1", port) for port in ports], "jobs", ["RETRY", "5"], 1)
    with ExitStack() as ending:
        plain.start()
        ending.callback(plain.kill)
        plain.wait_busy()
        transactions.start()
        delayed = delayed_load.DelayedLoad(bootstrap, "delayed")
        jobs.work(2, 4)
        jobs.add(10_000_000, 2, 4)
        ending.callback(jobs.stop)
        for work in (_administer, _send_big_batches):
            ending.callback(_repeated(work, bootstrap))
        time.sleep(MINUTES * 60)
        jobs.end_adding()
        delayed.finish()
        transactions.finish()
        history = History.merged([plain.finish(), read_out(bootstrap, "plain", range(PARTITIONS))])
    report = check(history)
    assert not report.findings, str(report)
    busy = _report(whole)
    assert busy.keys() <= EXPECTED.keys(), busy


def _report(whole: QbusCluster) -> dict[str, Slow]:
    """Print what held the loops; return what worked for too long, by handler."""
    found = [
        one
        for broker in whole.brokers.values()
        for one in slow_handlers(broker.log_text(WHOLE_LOG))
    ]
    print(table(found))
    return {one.handler: one for one in found if one.cpu_s > _BUSY_S}


def _repeated(work: Callable[[str, int], None], bootstrap: str) -> Callable[[], None]:
    """Do some work again and again in a thread; returns what ends that."""
    over = threading.Event()

    def run() -> None:
        number = 0
        while not over.wait(0.5):
            work(bootstrap, number)
            number += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def end() -> None:
        over.set()
        thread.join(120)

    return end


def _administer(bootstrap: str, number: int) -> None:
    """Make, describe and delete topics, as an operator's tools do."""
    topic = f"short-lived-{number}"
    with qbus.Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=20, replication_factor=3)
        admin.list_topics()
        admin.describe_topic("plain")
        admin.describe_cluster()
        for listed in admin.list_groups(types=["classic"]):
            admin.describe_group(listed.group)
        admin.delete_topic(topic)


def _send_big_batches(bootstrap: str, number: int) -> None:
    """Send batches of nearly 1 MB, in each compression, to a topic that looks into them and one."""
    codec = ("none", "gzip", "snappy", "lz4", "zstd")[number % 5]
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50}
    producer = ck.Producer({**settings, "batch.size": 900_000, "log_level": 2})
    for topic in ("big", "big-delayed"):
        for index in range(4_000):
            producer.produce(topic, b"%d %d " % (number, index) * 20)
    producer.flush(60)
