"""Queues that clients of Disque make for each reply: idle ones go, and no job is lost."""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbus import Admin
from tests.support.ports import free_ports
from tests.support.resp_client import RespClient
from tests.support.waiting import wait_until
from tests.support.workers_process import WorkersProcess

pytestmark = pytest.mark.integration

IDLE_MS = 1_000
PATIENCE_S = 90.0


class Broker:
    """Three nodes on one machine."""

    def __init__(self, directory: Path) -> None:
        self.ports = list(free_ports(3))
        self.process = WorkersProcess(
            directory,
            3,
            *("--disque-listen", f"127.0.0.1:{self.ports[0]}"),
            *("-o", f"disque.queue.idle.ms={IDLE_MS}"),
        )

    def topics(self) -> set[str]:
        with Admin(self.process.bootstrap) as admin:
            return {topic.name for topic in admin.list_topics()}

    def client(self, node: int = 0) -> RespClient:
        return RespClient(self.ports[node])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("nodes"))
    with made.process:
        yield made


def round_trip(client: RespClient, queue: str, body: str = "body") -> None:
    """Add a job, get it, and acknowledge it."""
    job = client("ADDJOB", queue, body, 10_000)
    assert isinstance(job, str), job
    ((_, got, value),) = client("GETJOB", "TIMEOUT", 10_000, "FROM", queue)
    assert (got, value) == (job, body)
    assert client("ACKJOB", job) == 1


def test_idle_ones_go_and_those_in_use_stay(broker: Broker) -> None:
    with Admin(broker.process.bootstrap) as admin:
        admin.create_topic("created")
    with broker.client() as client, broker.client(1) as worker:
        for queue in ("created", "reply-1", "reply-2", "worked"):
            round_trip(client, queue)
        assert isinstance(client("ADDJOB", "waits", "body", 10_000), str)
        assert isinstance(client("ADDJOB", "later", "body", 10_000, "DELAY", 3_600), str)
        assert isinstance(client("ADDJOB", "paused", "body", 10_000), str)
        assert client("PAUSE", "paused", "in", "bcast") == "in"
        worker.send("GETJOB", "FROM", "worked")
        stays = {"created", "waits", "later", "paused", "worked"}
        wait_until(lambda: broker.topics() == stays, "idle queues to go", PATIENCE_S)
        time.sleep(2.5 * IDLE_MS / 1000 + 10)  # two more sweeps
        assert broker.topics() == stays
        job = client("ADDJOB", "worked", "at last", 10_000)
        assert worker.receive() == [["worked", job, "at last"]]
        assert worker("ACKJOB", job) == 1
    broker.process.restart()
    with broker.client() as client:
        assert isinstance(client("PAUSE", "paused", "none", "bcast"), str)
        for queue in ("waits", "paused"):
            ((_, job, _),) = client("GETJOB", "TIMEOUT", 10_000, "FROM", queue)
            assert client("ACKJOB", job) == 1
        wait_until(lambda: broker.topics() == {"created", "later"}, "all others to go", PATIENCE_S)
        round_trip(client, "reply-1")


class Client(threading.Thread):
    """Uses a few queues again and again, about when they are deleted."""

    def __init__(self, broker: Broker, number: int) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._random = random.Random(number)
        self._number = number
        self.trips = 0
        self.failure: BaseException | None = None
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            with self._broker.client(self._number % 3) as client:
                while not self.stopping.wait(self._random.uniform(0.0, 0.4)):
                    queue = f"race-{self._number}-{self._random.randrange(25)}"
                    round_trip(client, queue, str(self.trips))
                    self.trips += 1
        except BaseException as error:
            self.failure = error


def test_a_job_that_races_with_the_deletion_is_neither_refused_nor_lost(broker: Broker) -> None:
    """Each queue is used every five seconds on average: some are about to go whenever one is."""
    clients = [Client(broker, number) for number in range(6)]
    for client in clients:
        client.start()
    time.sleep(60)
    for client in clients:
        client.stopping.set()
    for client in clients:
        client.join(PATIENCE_S)
    assert not [client.failure for client in clients if client.failure is not None]
    assert sum(client.trips for client in clients) > 100
    assert "deleted " in broker.process.log_text()
    wait_until(lambda: broker.topics() <= {"created", "later"}, "all to go", PATIENCE_S)
