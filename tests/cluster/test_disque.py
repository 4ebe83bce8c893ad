"""Jobs over RESP while brokers die: none is lost, none comes again once it is done.

Workers are as Disque's users write them: take a job from any node, do it, acknowledge it, and go to
the next node when one is gone. A job whose acknowledgement was answered must never come again. One
with RETRY 0 must never come twice.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.ports import free_ports
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.resp_client import ReplyError, RespClient
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

RETRY_S = 3
_PATIENCE = 120.0


class Nodes:
    """Where the nodes listen; a client goes to one that answers."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self._turns = itertools.count()

    def connect(self) -> RespClient:
        """A connection to the next node that is there."""
        while True:
            port = self.ports[next(self._turns) % len(self.ports)]
            try:
                return RespClient(port)
            except OSError:
                time.sleep(0.05)


class Worker(threading.Thread):
    """Takes jobs and acknowledges them, until it is told to stop."""

    def __init__(self, nodes: Nodes, queue: str) -> None:
        super().__init__(daemon=True)
        self._nodes = nodes
        self._queue = queue
        self._stopping = threading.Event()
        self.given: list[str] = []
        self.done: list[str] = []
        self.unsure: set[str] = set()
        self.given_after_done: list[str] = []

    def run(self) -> None:
        client = self._nodes.connect()
        while not self._stopping.is_set():
            try:
                self._work(client)
            except OSError:
                client.close()
                client = self._nodes.connect()
        client.close()

    def _work(self, client: RespClient) -> None:
        jobs = client("GETJOB", "TIMEOUT", 500, "COUNT", 5, "FROM", self._queue)
        if isinstance(jobs, ReplyError):
            time.sleep(0.05)
            return
        for _, job, body in jobs or ():
            if body in self.done:
                self.given_after_done.append(body)
            self.given.append(body)
            self.unsure.add(body)  # until the acknowledgement is answered
            if client("ACKJOB", job) == 1:
                self.done.append(body)
                self.unsure.discard(body)

    def stop(self) -> None:
        """Stop after the job at hand."""
        self._stopping.set()
        self.join(_PATIENCE)
        assert not self.is_alive()


class Adder(threading.Thread):
    """Adds numbered jobs, each until a node has it; whoever is not sure adds it again."""

    def __init__(self, nodes: Nodes, queue: str, count: int, options: list[str]) -> None:
        super().__init__(daemon=True)
        self._nodes = nodes
        self._queue = queue
        self._count = count
        self._options = options
        self.unsure: set[str] = set()

    def run(self) -> None:
        client = self._nodes.connect()
        for number in range(self._count):
            while True:
                try:
                    reply = client("ADDJOB", self._queue, number, 10_000, *self._options)
                except OSError:
                    client.close()
                    client = self._nodes.connect()
                else:
                    if not isinstance(reply, ReplyError):
                        break
                self.unsure.add(str(number))
                time.sleep(0.05)
            time.sleep(0.01)
        client.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[QbusCluster, Nodes]]:
    """Three brokers that serve jobs."""
    made = QbusCluster(tmp_path_factory.mktemp("cluster"))
    ports = list(free_ports(len(NODES)))
    for broker, port in zip(made.brokers.values(), ports, strict=True):
        broker.options = (*broker.options, "--disque-listen", f"127.0.0.1:{port}")
    with made:
        yield made, Nodes(ports)


def _kill_in_turn(cluster: QbusCluster, adder: Adder) -> None:
    """Kill each broker once while jobs are added, and start it again."""
    for node in NODES:
        if not adder.is_alive():
            break
        cluster.brokers[node].kill()
        time.sleep(2.0)
        cluster.brokers[node].start()
        time.sleep(2.0)


def test_no_job_is_lost_or_comes_again_after_its_acknowledgement(
    cluster: tuple[QbusCluster, Nodes],
) -> None:
    brokers, nodes = cluster
    adder = Adder(nodes, "work", 600, ["RETRY", str(RETRY_S), "REPLICATE", "2"])
    workers = [Worker(nodes, "work") for _ in range(4)]
    for thread in (adder, *workers):
        thread.start()
    _kill_in_turn(brokers, adder)
    adder.join(_PATIENCE)
    assert not adder.is_alive()
    wanted = {str(number) for number in range(600)}
    wait_until(lambda: wanted <= _done(workers), "all jobs to be done", _PATIENCE)
    time.sleep(2 * RETRY_S)  # what is not acknowledged would come again
    for worker in workers:
        worker.stop()
    done = Counter(one for worker in workers for one in worker.done)
    assert wanted <= _done(workers)
    twice = {body for body, times in done.items() if times > 1}
    assert twice <= adder.unsure, "acknowledged twice"
    again = {body for worker in workers for body in worker.given_after_done}
    assert again <= adder.unsure, "given out after the acknowledgement"


def _done(workers: list[Worker]) -> set[str]:
    """What was acknowledged, or was perhaps: the answer was lost with its node."""
    known = {body for worker in workers for body in worker.done}
    return known.union(*(worker.unsure for worker in workers))


def test_a_job_without_retry_never_comes_twice(cluster: tuple[QbusCluster, Nodes]) -> None:
    brokers, nodes = cluster
    adder = Adder(nodes, "once", 300, ["RETRY", "0", "REPLICATE", "1"])
    workers = [Worker(nodes, "once") for _ in range(4)]
    for thread in (adder, *workers):
        thread.start()
    _kill_in_turn(brokers, adder)
    adder.join(_PATIENCE)
    time.sleep(2 * RETRY_S)
    for worker in workers:
        worker.stop()
    given = Counter(one for worker in workers for one in worker.given)
    assert {body for body, times in given.items() if times > 1} <= adder.unsure
    assert len(given) > 200


def test_what_nobody_wants_stays_where_it_is(cluster: tuple[QbusCluster, Nodes]) -> None:
    """Nodes that waited at others for a client do not go on to wait for each other."""
    _, nodes = cluster
    with RespClient(nodes.ports[0]) as one, RespClient(nodes.ports[1]) as other:
        first = other("ADDJOB", "left", "first", 20_000, "RETRY", 1)
        assert other("ACKJOB", first) == 1
        assert one("GETJOB", "TIMEOUT", 500, "FROM", "left") is None
        job = other("ADDJOB", "left", "second", 20_000, "RETRY", 1)
        time.sleep(4)
        words = other("SHOW", job)
        known = dict(zip(words[::2], words[1::2], strict=True))
        assert (known["state"], known["additional-deliveries"]) == ("queued", 0)
        ((_, got, _),) = one("GETJOB", "TIMEOUT", 20_000, "FROM", "left")
        assert got == job
        assert one("ACKJOB", job) == 1
