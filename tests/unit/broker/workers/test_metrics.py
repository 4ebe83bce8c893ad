"""The metrics of all workers at one address."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from qbus.broker.metrics import Metrics
from qbus.broker.workers.metrics import WorkersMetrics, WorkerState
from qbus.service.http import Asking, Caller, asking
from qbus.service.prometheus import PageSecurity, serve
from tests.support.ports import free_port


@pytest.fixture
def workers() -> Iterator[dict[int, int]]:
    """Two that serve metrics: their ports by node id."""
    ports, stops = {}, []
    for node_id in (1, 2):
        metrics = Metrics()
        metrics.gauge("groups", "Number of groups.", lambda node_id=node_id: 10 * node_id)  # type: ignore[misc]
        metrics.counter("commits", "Number of commits.", lambda: 3)
        metrics.requests.observe(0, 0.0)
        ports[node_id] = free_port()
        stops.append(serve(metrics, "127.0.0.1", ports[node_id]))
    yield ports
    for stop in stops:
        stop()


def shown(metrics: WorkersMetrics) -> str:
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry).decode()


def test_a_state_survives_a_message() -> None:
    state = WorkerState(7, 12345, 2)
    assert WorkerState.decode(state.encode()) == state


def test_each_sample_names_its_broker(workers: dict[int, int]) -> None:
    metrics = WorkersMetrics()
    for node_id, port in workers.items():
        metrics.workers[node_id] = WorkerState(node_id, port, node_id - 1)
    lines = shown(metrics).splitlines()
    assert 'qbus_groups{broker="1"} 10.0' in lines
    assert 'qbus_groups{broker="2"} 20.0' in lines
    assert 'qbus_commits_total{broker="2"} 3.0' in lines
    assert 'qbus_request_seconds_count{api="0",broker="1"} 1.0' in lines
    assert lines.count("# TYPE qbus_groups gauge") == 1
    assert 'qbus_worker_up{broker="2"} 1.0' in lines
    assert 'qbus_worker_restarts_total{broker="2"} 1.0' in lines


def test_one_that_does_not_answer_is_down_and_hides_nothing(workers: dict[int, int]) -> None:
    metrics = WorkersMetrics()
    metrics.workers[1] = WorkerState(1, workers[1], 0)
    metrics.workers[3] = WorkerState(3, free_port(), 4)
    lines = shown(metrics).splitlines()
    assert 'qbus_worker_up{broker="3"} 0.0' in lines
    assert 'qbus_worker_restarts_total{broker="3"} 4.0' in lines
    assert 'qbus_groups{broker="1"} 10.0' in lines


def test_a_proxy_of_the_environment_is_not_asked(
    workers: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr("urllib.request._opener", None)  # it keeps the proxies of its first use
    metrics = WorkersMetrics()
    metrics.workers[1] = WorkerState(1, workers[1], 0)
    assert 'qbus_worker_up{broker="1"} 1.0' in shown(metrics).splitlines()


@pytest.mark.parametrize("body", [b"half", b"<html>something else</html>"])
def test_one_that_answers_half_or_something_else_hides_nothing(
    workers: dict[int, int], body: bytes
) -> None:
    head = b"HTTP/1.0 200 OK\r\nContent-Length: 27\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                client.sendall(head + body)

        thread = threading.Thread(target=answer)
        thread.start()
        metrics = WorkersMetrics()
        metrics.workers[1] = WorkerState(1, workers[1], 0)
        metrics.workers[3] = WorkerState(3, listener.getsockname()[1], 0)
        lines = shown(metrics).splitlines()
        thread.join()
    assert 'qbus_worker_up{broker="3"} 0.0' in lines
    assert 'qbus_groups{broker="1"} 10.0' in lines


def test_no_workers_yet() -> None:
    assert "qbus_worker_up{" not in shown(WorkersMetrics())


class TestOnBehalfOfOthers:
    """Workers decide who may read, by what the caller has shown to the page of all of them."""

    SECRET = "known to both"

    @pytest.fixture
    def seen(self) -> list[Caller]:
        return []

    @pytest.fixture
    def guarded(self, seen: list[Caller]) -> Iterator[WorkersMetrics]:
        """One worker that lets in whoever has Alice's certificate."""

        async def decide(caller: Caller) -> HTTPStatus:
            seen.append(caller)
            if caller.certificate is None:
                return HTTPStatus.UNAUTHORIZED
            return HTTPStatus.OK if caller.certificate == b"Alice's" else HTTPStatus.FORBIDDEN

        port = free_port()
        stop = serve(Metrics(), "127.0.0.1", port, security=PageSecurity(None, decide, self.SECRET))
        metrics = WorkersMetrics(self.SECRET)
        metrics.workers[1] = WorkerState(1, port, 0)
        yield metrics
        stop()

    @pytest.mark.parametrize(
        ("certificate", "status"),
        [
            (b"Alice's", HTTPStatus.OK),
            (b"Bob's", HTTPStatus.FORBIDDEN),
            (None, HTTPStatus.UNAUTHORIZED),
        ],
    )
    async def test_a_certificate_counts(
        self,
        guarded: WorkersMetrics,
        seen: list[Caller],
        certificate: bytes | None,
        status: HTTPStatus,
    ) -> None:
        asking.set(Asking("10.1.2.3", "", certificate))
        assert await guarded.decide(Caller("10.1.2.3", certificate=certificate)) is status
        assert seen[-1] == Caller("10.1.2.3", certificate=certificate)
        lines = (await asyncio.to_thread(shown, guarded)).splitlines()
        assert f'qbus_worker_up{{broker="1"}} {float(status is HTTPStatus.OK)}' in lines

    async def test_without_the_secret_nothing_is_believed(
        self, guarded: WorkersMetrics, seen: list[Caller]
    ) -> None:
        forger = WorkersMetrics("guessed")
        forger.workers = guarded.workers
        asking.set(Asking("10.1.2.3", "", b"Alice's"))
        assert await forger.decide(Caller("10.1.2.3")) is HTTPStatus.UNAUTHORIZED
        assert seen[-1] == Caller("127.0.0.1")
