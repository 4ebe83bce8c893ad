"""Clients of jobs that wait by the thousand, send nonsense, send slowly, or do not read."""

import random
import resource
import socket
from collections.abc import Iterator

import psutil
import pytest

from qbus.broker.disque import resp
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.resp_client import RespClient
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

_BYTES_PER_CLIENT = 12_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, int]]:
    """A broker, and where it serves jobs."""
    port, directory = free_port(), tmp_path_factory.mktemp("broker") / "data"
    options = ("--disque-listen", f"127.0.0.1:{port}", "-o", "request.frame.timeout.ms=1000")
    with BrokerProcess(directory, *options) as broker:
        yield broker, port


def memory(broker: BrokerProcess) -> int:
    """The broker's resident memory, in bytes."""
    return int(psutil.Process(broker.pid).memory_info().rss)


@pytest.mark.nightly
def test_thousands_wait_for_jobs(served: tuple[BrokerProcess, int]) -> None:
    broker, port = served
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(9_000, hard - 500)
    before = memory(broker)
    sockets = []
    try:
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", port))
            one.sendall(b"GETJOB FROM idle\r\n")
            sockets.append(one)
        with RespClient(port) as client:
            wait_until(lambda: client("QSTAT", "idle")[9] == count, "all to wait")
            assert (memory(broker) - before) / count < _BYTES_PER_CLIENT
            added = [client("ADDJOB", "idle", number, 5000) for number in range(20)]
            for number, one in enumerate(sockets[:20]):
                one.settimeout(20)
                assert resp.bulk(str(number)) in one.recv(4096)
            assert client("ACKJOB", *added) == 20
            for one in sockets:
                one.close()
            wait_until(lambda: client("QSTAT", "idle")[9] == 0, "nobody to wait")
    finally:
        for one in sockets:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "data",
    [
        b"*1\r\n$99999999999\r\n",
        b"*99999999\r\n",
        b"*2\r\n$4\r\nPING\r\n$-5\r\n",
        b"*1\r\n:1\r\n",
        b'PING "\r\n',
        b"x" * 70_000,
        b"GET / HTTP/1.1\r\nHost: qbus\r\n\r\n",
        bytes(random.Random(7).randrange(256) for _ in range(100_000)),
    ],
)
def test_nonsense_harms_nobody_else(served: tuple[BrokerProcess, int], data: bytes) -> None:
    _, port = served
    with RespClient(port) as client, socket.create_connection(("127.0.0.1", port)) as other:
        other.sendall(data)
        other.shutdown(socket.SHUT_WR)
        other.settimeout(20)
        try:
            while other.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
        assert client("PING") == "PONG"


def test_a_command_that_is_not_whole_in_time_ends_its_connection(
    served: tuple[BrokerProcess, int],
) -> None:
    _, port = served
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(b"*2\r\n$4\r\nPI")
        slow.settimeout(20)
        assert slow.recv(100) == b""


def test_one_that_does_not_read_costs_little(served: tuple[BrokerProcess, int]) -> None:
    broker, port = served
    with RespClient(port) as client:
        client("ADDJOB", "big", "x" * 500_000, 5000)
        before = memory(broker)
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            deaf.setblocking(False)
            for _ in range(2000):
                try:
                    deaf.send(b"QPEEK big 1\r\n" * 100)
                except BlockingIOError:
                    break
            assert client("PING") == "PONG"
            assert memory(broker) - before < 60_000_000
        assert client("QLEN", "big") == 1


def test_a_long_pipeline_is_answered_in_order(served: tuple[BrokerProcess, int]) -> None:
    _, port = served
    with RespClient(port) as client:
        client("ADDJOB", "long", "first", 5000)
        count = 3000
        client.send_raw(b"".join(resp.command(["PING", str(number)]) for number in range(count)))
        assert [client.receive() for _ in range(count)] == [str(one) for one in range(count)]
        client.send_raw(b"ADDJOB long x 5000\r\nQLEN long\r\n" * 50)
        lengths = [client.receive() for _ in range(100)][1::2]
        assert lengths == list(range(2, 52))
