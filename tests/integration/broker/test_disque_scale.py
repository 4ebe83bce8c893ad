"""Many queues, many consumers of one, and very many jobs that wait: what each costs.

The numbers of a full size are of nights; the suite runs each at a size of seconds.
"""

import resource
import selectors
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from qbus import Producer
from qbus.broker.disque import resp
from tests.support.broker_process import BrokerProcess, free_port
from tests.support.resp_client import RespClient
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

_QUEUE_BYTES = 150_000
"""Of memory, that a queue may take with all that a topic of its own takes."""


@contextmanager
def serving(directory: Path, port: int) -> Iterator[BrokerProcess]:
    """A broker that serves jobs on ``port``."""
    options = ("--disque-listen", f"127.0.0.1:{port}", "-o", "durability=memory")
    with BrokerProcess(directory, *options) as broker:
        yield broker


def memory(broker: BrokerProcess) -> int:
    """The broker's resident memory, in bytes."""
    return int(psutil.Process(broker.pid).memory_info().rss)


def nightly(size: int, timeout_s: int = 3600) -> object:
    """A size for nights."""
    return pytest.param(size, marks=[pytest.mark.nightly, pytest.mark.timeout(timeout_s)])


@pytest.mark.parametrize("count", [60, nightly(1_000)])
def test_many_queues(tmp_path: Path, count: int) -> None:
    port, names = free_port(), [f"queue-{number}" for number in range(count)]
    with serving(tmp_path / "data", port) as broker, RespClient(port) as client:
        before = memory(broker)
        for name in names:
            assert isinstance(client("ADDJOB", name, f"of {name}", 20_000), str)
        assert (memory(broker) - before) / count < _QUEUE_BYTES
        broker.kill()
        broker.start()
        with RespClient(port) as again:
            assert [again("QLEN", name) for name in names] == [1] * count
            jobs = [job for name in names for job in again("GETJOB", "FROM", name)]
            assert [body for _, _, body in jobs] == [f"of {name}" for name in names]
            assert again("ACKJOB", *(job for _, job, _ in jobs)) == count


@pytest.mark.parametrize("count", [500, nightly(5_000)])
def test_one_queue_with_many_consumers(tmp_path: Path, count: int) -> None:
    """Each of them waits for a job, gets one, acknowledges it, and waits for the next."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    port, rounds = free_port(), 3
    sockets: list[socket.socket] = []
    try:
        with serving(tmp_path / "data", port), RespClient(port) as client:
            for _ in range(count):
                one = socket.create_connection(("127.0.0.1", port))
                one.sendall(b"GETJOB FROM hot\r\n")
                sockets.append(one)
            wait_until(lambda: client("QSTAT", "hot")[9] == count, "all to wait", 60)
            wanted = rounds * count
            for number in range(wanted):
                client.send("ADDJOB", "hot", number, 60_000, "ASYNC")
            assert all(isinstance(client.receive(), str) for _ in range(wanted))
            given = _consume(sockets, wanted)
            assert sorted(given) == sorted(str(number) for number in range(wanted))
            assert client("QLEN", "hot") == 0
            wait_until(lambda: client("QSTAT", "hot")[9] == count, "all to wait again", 60)
    finally:
        for one in sockets:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _consume(sockets: list[socket.socket], wanted: int) -> list[str]:
    """Acknowledge what comes over the connections, each of which then asks again; the bodies."""
    given: list[str] = []
    acknowledging: set[socket.socket] = set()
    with selectors.DefaultSelector() as selector:
        for one in sockets:
            one.settimeout(30)
            selector.register(one, selectors.EVENT_READ)
        deadline = time.monotonic() + 300
        while len(given) < wanted:
            assert time.monotonic() < deadline, f"{len(given)} of {wanted} came"
            for key, _ in selector.select(1.0):
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                # Of one connection there is one reply at a time: a job, or that it is done.
                data = ready.recv(4096)
                if data.startswith(b"*1"):
                    *_, job, _, body, _ = data.split(b"\r\n")
                    given.append(body.decode())
                    ready.sendall(resp.command(["ACKJOB", job]))
                    acknowledging.add(ready)
                else:
                    assert data == b":1\r\n"
                    ready.sendall(b"GETJOB FROM hot\r\n")
                    acknowledging.remove(ready)
    for one in acknowledging:  # the last ones ask again, too
        assert one.recv(4096) == b":1\r\n"
        one.sendall(b"GETJOB FROM hot\r\n")
    return given


@pytest.mark.parametrize("count", [100_000, nightly(10_000_000)])
def test_very_many_jobs_wait(tmp_path: Path, count: int) -> None:
    """Memory is bounded, a job costs what it costs with few, and a restart takes no time."""
    port = free_port()
    with serving(tmp_path / "data", port) as broker:
        with RespClient(port) as client:
            client("ADDJOB", "deep", "first", 20_000)
            _take_and_acknowledge(client, 1)
            few = _latency(client, "shallow")
        body = b"x" * 100
        with Producer(broker.bootstrap, linger_ms=20) as producer:
            for first in range(0, count, 100_000):
                producer.send_many("deep", [body] * min(100_000, count - first))
        with RespClient(port) as client:
            assert client("QLEN", "deep") == count
            assert memory(broker) < 250_000_000
            _take_and_acknowledge(client, 200)
            assert _latency(client, "deep") < 5 * few + 0.005
        broker.kill()
        began = time.monotonic()
        broker.start()
        with RespClient(port) as client:
            _take_and_acknowledge(client, 1)
            assert time.monotonic() - began < 15
            assert count - 600 < client("QLEN", "deep") < count


def _take_and_acknowledge(client: RespClient, count: int) -> float:
    """Seconds that it takes."""
    began = time.perf_counter()
    for _ in range(count):
        ((_, job, _),) = client("GETJOB", "FROM", "deep")
        assert client("ACKJOB", job) == 1
    return time.perf_counter() - began


def _latency(client: RespClient, queue: str) -> float:
    """The median of the seconds from a question to its job, where there is one."""
    times = []
    for number in range(100):
        client("ADDJOB", queue, number, 20_000)
        began = time.perf_counter()
        ((_, job, _),) = client("GETJOB", "FROM", queue)
        times.append(time.perf_counter() - began)
        client("ACKJOB", job)
    return statistics.median(times)
