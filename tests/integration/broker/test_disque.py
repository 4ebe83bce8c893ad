"""Jobs over several nodes: any node takes any client, whoever leads the queue."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.ports import free_ports
from tests.support.resp_client import ReplyError, RespClient
from tests.support.workers_process import WorkersProcess

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def ports() -> list[int]:
    """Where three nodes of one broker serve jobs."""
    return list(free_ports(3))


@pytest.fixture(scope="module", autouse=True)
def broker(ports: list[int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkersProcess]:
    """The broker whose workers they are."""
    directory = tmp_path_factory.mktemp("nodes")
    with WorkersProcess(directory, 3, "--disque-listen", f"127.0.0.1:{ports[0]}") as made:
        yield made


@pytest.fixture
def nodes(ports: list[int]) -> Iterator[list[RespClient]]:
    """A connection to each node."""
    clients = [RespClient(port) for port in ports]
    yield clients
    for client in clients:
        client.close()


@pytest.fixture
def queue(request: pytest.FixtureRequest, nodes: list[RespClient]) -> str:
    """A queue of the test's own."""
    name = str(request.node.name)
    assert isinstance(nodes[0]("ADDJOB", name, "first", 5000), str)
    for _, job, _ in nodes[0]("GETJOB", "FROM", name):
        assert nodes[0]("ACKJOB", job) == 1
    return name


def test_hello_names_them_all_with_ids_that_stay(nodes: list[RespClient], ports: list[int]) -> None:
    hellos = [node("HELLO") for node in nodes]
    names = [hello[1] for hello in hellos]
    assert len(set(names)) == 3
    for hello in hellos:
        assert sorted(hello[2:]) == sorted(
            [name, "127.0.0.1", str(port), "1"] for name, port in zip(names, ports, strict=True)
        )
        assert hello[2][0] == hello[1]
    assert [node("CLUSTER", "MYID") for node in nodes] == names
    assert "cluster_known_nodes:3" in nodes[0]("CLUSTER", "INFO")
    assert nodes[0]("CLUSTER", "MEET", "127.0.0.1", ports[1]) == "OK"
    assert isinstance(nodes[0]("CLUSTER", "MEET", "127.0.0.1", 1), ReplyError)
    assert isinstance(nodes[0]("CLUSTER", "FORGET", names[1]), ReplyError)


def test_a_job_is_taken_and_acknowledged_at_any_node(nodes: list[RespClient], queue: str) -> None:
    job = nodes[0]("ADDJOB", queue, "body", 5000, "RETRY", 50)
    assert [node("QLEN", queue) for node in nodes] == [1, 0, 0]
    assert nodes[1]("GETJOB", "NOHANG", "FROM", queue) == [[queue, job, "body"]]
    shown = nodes[2]("SHOW", job)
    assert shown[:6] == ["id", job, "queue", queue, "state", "active"]
    assert nodes[2]("WORKING", job) == 50
    assert nodes[1]("NACK", job) == 1
    assert nodes[2]("GETJOB", "NOHANG", "WITHCOUNTERS", "FROM", queue) == [
        [queue, job, "body", "nacks", 1, "additional-deliveries", 0]
    ]
    assert nodes[1]("DEQUEUE", job) == 0
    assert nodes[1]("ENQUEUE", job) == 1
    assert nodes[2]("DEQUEUE", job) == 1
    assert nodes[2]("ACKJOB", job) == 1
    assert nodes[0]("ACKJOB", job) == 0


def test_jobs_of_several_nodes_are_acknowledged_in_one_command(
    nodes: list[RespClient], queue: str
) -> None:
    jobs = [node("ADDJOB", queue, "body", 5000) for node in nodes]
    assert [node("QLEN", queue) for node in nodes] == [1, 1, 1]
    assert nodes[1]("ACKJOB", *jobs, "RESULT", "good") == 3
    assert [nodes[0]("WAITJOB", job) for job in jobs] == ["good"] * 3
    assert [node("QLEN", queue) for node in nodes] == [0, 0, 0]


def test_a_client_that_waits_gets_jobs_of_other_nodes(nodes: list[RespClient], queue: str) -> None:
    nodes[1].send("GETJOB", "FROM", queue)
    nodes[2].send("GETJOB", "TIMEOUT", 20_000, "FROM", queue)
    assert nodes[1].receives_nothing(0.3)
    added = {nodes[0]("ADDJOB", queue, number, 5000) for number in range(2)}
    got = [nodes[1].receive(), nodes[2].receive()]
    assert {job for ((_, job, _),) in got} == added
    assert nodes[0]("ACKJOB", *added) == 2


@pytest.mark.parametrize("retry", ["30", "0"])
def test_one_that_has_gone_loses_no_job(ports: list[int], queue: str, retry: str) -> None:
    with RespClient(ports[1]) as gone:
        gone.send("GETJOB", "FROM", queue)
        assert gone.receives_nothing(0.3)
    with RespClient(ports[0]) as client, RespClient(ports[2]) as other:
        job = client("ADDJOB", queue, "body", 5000, "RETRY", retry, "REPLICATE", 1)
        with RespClient(ports[1]) as late:
            jobs = late("GETJOB", "TIMEOUT", 20_000, "FROM", queue)
        assert jobs == [[queue, job, "body"]]
        assert other("ACKJOB", job) == int(retry != "0")


def test_waiting_for_a_job_of_another_node(nodes: list[RespClient], queue: str) -> None:
    job = nodes[0]("ADDJOB", queue, "body", 5000, "DELAY", 1)
    nodes[1].send("WAITJOB", job, 20_000)
    nodes[2].send("WAITJOB", job, 100)
    assert nodes[2].receive() is None
    ((_, taken, _),) = nodes[2]("GETJOB", "TIMEOUT", 20_000, "FROM", queue)
    assert taken == job
    assert nodes[2]("ACKJOB", job, "RESULT", "42") == 1
    assert nodes[1].receive() == "42"


def test_a_pause_of_all_nodes(nodes: list[RespClient], queue: str) -> None:
    job = nodes[0]("ADDJOB", queue, "body", 5000)
    assert nodes[1]("PAUSE", queue, "all", "bcast") == "all"
    for node in nodes:
        assert node("PAUSE", queue, "state") == "all"
        assert node("GETJOB", "NOHANG", "FROM", queue) is None
        assert str(node("ADDJOB", queue, "body", 5000)).startswith("PAUSED")
    assert nodes[2]("PAUSE", queue, "none", "bcast") == "none"
    assert nodes[1]("GETJOB", "TIMEOUT", 20_000, "FROM", queue) == [[queue, job, "body"]]
    assert nodes[1]("FASTACK", job) == 1


def test_a_node_that_stands_still_keeps_nobody_waiting(
    broker: WorkersProcess, nodes: list[RespClient], queue: str
) -> None:
    assert nodes[1]("GETJOB", "NOHANG", "FROM", queue) is None  # they know each other
    still = broker.worker_pid(1)
    os.kill(still, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert nodes[1]("GETJOB", "TIMEOUT", 100, "FROM", queue) is None
        assert nodes[1]("GETJOB", "NOHANG", "FROM", queue) is None
        assert nodes[2]("GETJOB", "NOHANG", "FROM", queue) is None
        assert time.monotonic() - began < 5, "an answer of a node is waited for up to 10 s"
        nodes[1].send("GETJOB", "FROM", queue)
        job = nodes[2]("ADDJOB", queue, "body", 5000, "REPLICATE", 1)
        assert nodes[1].receive() == [[queue, job, "body"]]
    finally:
        os.kill(still, signal.SIGCONT)
    assert nodes[1]("ACKJOB", job) == 1
    late = nodes[0]("ADDJOB", queue, "late", 5000)
    assert nodes[1]("GETJOB", "TIMEOUT", 20_000, "FROM", queue) == [[queue, late, "late"]]
    assert nodes[0]("ACKJOB", late) == 1


def test_a_node_that_leaves_passes_jobs_on(nodes: list[RespClient], queue: str) -> None:
    names = [node("CLUSTER", "MYID") for node in nodes]
    assert nodes[0]("CLUSTER", "LEAVING", "yes") == "OK"
    try:
        assert [priorities(node)[names[0]] for node in nodes] == ["100"] * 3
        job = nodes[0]("ADDJOB", queue, "body", 5000)
        assert job[2:10] in {names[1][:8], names[2][:8]}
        assert str(nodes[0]("GETJOB", "FROM", "nothing")).startswith("LEAVING")
    finally:
        assert nodes[0]("CLUSTER", "LEAVING", "no") == "OK"
    assert [priorities(node)[names[0]] for node in nodes] == ["1"] * 3
    assert nodes[0]("ACKJOB", job) == 1


def priorities(node: RespClient) -> dict[str, Any]:
    """The priority of each node, as one of them says."""
    return {name: priority for name, _, _, priority in node("HELLO")[2:]}


def test_many_workers_at_all_nodes_share_the_jobs(ports: list[int], queue: str) -> None:
    count, taken, lock = 200, list[str](), threading.Lock()

    def work(port: int) -> None:
        with RespClient(port) as client:
            while jobs := client("GETJOB", "TIMEOUT", 3000, "FROM", queue):
                for _, job, body in jobs:
                    assert client("ACKJOB", job) == 1
                    with lock:
                        taken.append(body)

    threads = [threading.Thread(target=work, args=(port,)) for port in ports * 3]
    for thread in threads:
        thread.start()
    clients = [RespClient(port) for port in ports]
    for number in range(count):
        assert isinstance(clients[number % 3]("ADDJOB", queue, number, 5000), str)
    for thread in threads:
        thread.join(60)
    for client in clients:
        client.close()
    assert sorted(taken, key=int) == [str(number) for number in range(count)]
