"""The worst requests of 1 MB for each page over HTTP: what they cost the server's loop and memory.

What is counted is work, as in :mod:`.test_worst_requests`. The server of a page runs in the test's
event loop, behind the function that every process serves its page with.
"""

import ast
import asyncio
import base64
import os
import socket
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

import qbus
from qbus.agent.control import configured_agent
from qbus.agent.metrics import AgentMetrics
from qbus.agent.status import AgentStatus
from qbus.broker.authorization import AccessControl
from qbus.broker.controller import leaderless_partitions
from qbus.broker.group.metrics import GroupLag
from qbus.broker.metrics import Metrics
from qbus.broker.metrics_page import PageAccess
from qbus.broker.net.peer import Principal
from qbus.broker.workers.metrics import WorkersMetrics, WorkerState
from qbus.clients.mirror.config import parse
from qbus.clients.mirror.metrics import MirrorMetrics
from qbus.clients.mirror.status import LinkStatus, PartitionState, PartitionStatus
from qbus.service import http, prometheus
from qbus.service.control import Configured
from qbus.service.http import RESPONSE_S, PageServer
from qbus.service.metrics_page import UsersFile
from qbus.service.prometheus import Collector, PageSecurity
from tests.support.loop_meter import Meter
from tests.support.waiting import eventually
from tests.unit.broker.kafka.handlers.transaction_broker import TransactionBroker

pytestmark = [pytest.mark.security, pytest.mark.sources]

MOST_CALLS: Final = 5_000
MOST_BYTES: Final = 2 << 20
"""What the server keeps for one client: asyncio receives up to 256 KB at once, several times."""

SIZE: Final = 1_000_000
GET: Final = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
_PARTITIONS: Final = 10_000
_PAGES: Final = ("agent", "broker", "hub", "mirror")
_SERVERS: Final = {
    "qbus/broker/server.py": "broker",
    "qbus/broker/workers/hub.py": "hub",
    "qbus/service/daemon.py": "agent and mirror",
}
_DAEMONS: Final = {"qbus/agent/daemon.py", "qbus/clients/mirror/daemon.py"}


def _line(target: bytes) -> bytes:
    return b"GET " + target + b" HTTP/1.1\r\n\r\n"


def _headers(lines: bytes) -> bytes:
    return b"GET /metrics HTTP/1.1\r\n" + lines + b"\r\n\r\n"


_FULL: Final = 15_000  # of the 16 KB that a request may have
TABLE: Final[dict[str, tuple[bytes, set[int]]]] = {
    "a request line of 1 MB": (_line(b"/" + b"x" * SIZE), {431}),
    "a request line without an end": (b"GET /" + b"x" * SIZE, {431}),
    "a header of 1 MB": (_headers(b"x: " + b"y" * SIZE), {431}),
    "1 MB of headers": (_headers(b"\r\n".join([b"x: " + b"y" * 97] * 10_000)), {431}),
    "100,000 headers": (_headers(b"\r\n".join([b"x: y"] * 100_000)), {431}),
    "as many headers as fit": (_headers(b"\r\n".join([b"a:"] * (_FULL // 4))), {431}),
    "64 headers of one name": (_headers(b"\r\n".join([b"x: " + b"y" * 200] * 64)), {200}),
    "a header of spaces": (_headers(b"x:" + b" \t" * (_FULL // 2) + b"\0"), {400}),
    "a header of spaces and a letter": (_headers(b"x:" + b" " * _FULL + b"y"), {200}),
    "no HTTP": (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" * (SIZE // 11), {431}),
    "no HTTP, in lines": (b"\r\n\r\n" * (SIZE // 4), {400}),
    "a body of 1 MB": (_headers(b"Content-Length: %d" % SIZE) + b"x" * SIZE, {413}),
    "a body in chunks": (
        _headers(b"Transfer-Encoding: chunked") + b"1\r\nx\r\n" * (SIZE // 6),
        {413},
    ),
    "a body that is not announced": (GET + b"x" * SIZE, {200}),
    "1 MB of pipelined requests": (GET * (SIZE // len(GET)), {200}),
    "many parameters": (_line(b"/metrics?" + b"&".join([b"name[]=a"] * 900)), {400}),
    "an Accept of commas": (_headers(b"Accept: " + b"," * _FULL), {200}),
    "an Accept of versions": (
        _headers(b"Accept: application/openmetrics-text;version=" + b"1." * (_FULL // 2)),
        {200},
    ),
    "an Accept of no version": (
        _headers(b"Accept: text/plain;version=" + b"x" * _FULL),
        {200},
    ),
    "an Accept-Encoding of commas": (_headers(b"Accept-Encoding: " + b"gzip;q=0," * 1500), {200}),
    "long credentials": (
        _headers(b"Authorization: Basic " + base64.b64encode(b"u:" + b"p" * 11_000)),
        {200},
    ),
}


class ServerHere(PageServer):
    """Serves in the running event loop in place of a thread of its own."""

    def start(self) -> None:
        """See :meth:`PageServer.start`."""
        self._sock.setblocking(False)
        self.address = self._sock.getsockname()
        self.loop_thread = threading.get_ident()
        self.serving = asyncio.get_running_loop().create_task(self._serve())

    def stop(self) -> None:
        """End it; :func:`served` waits for that."""
        assert self._over is not None
        self._over.set()

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._tasks)

    @property
    def most_connections(self) -> int:
        """How many there may be."""
        return self._max_connections

    async def ask(self, data: bytes) -> bytes:
        """What comes back for ``data``; what cannot be sent any more is left out."""
        loop = asyncio.get_running_loop()
        with await self.connect() as client:
            with suppress(ConnectionError):
                await loop.sock_sendall(client, data)
            return await received(client)

    async def connect(self) -> socket.socket:
        """A client's connection."""
        client = socket.socket()
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, self.address)
        return client


async def received(client: socket.socket) -> bytes:
    loop, parts = asyncio.get_running_loop(), []
    with suppress(ConnectionError):
        while data := await loop.sock_recv(client, 1 << 18):
            parts.append(data)
    return b"".join(parts)


def status(answer: bytes) -> int:
    """0: there is no answer, such as when the connection was reset before it was read."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


@asynccontextmanager
async def served(
    collector: Collector, security: PageSecurity = prometheus._OPEN
) -> AsyncIterator[ServerHere]:
    """The page of a collector, as processes serve it."""
    made: list[ServerHere] = []

    def make(*args: Any, **options: Any) -> ServerHere:
        made.append(ServerHere(*args, **options))
        return made[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prometheus, "PageServer", make)
        stop = prometheus.serve(collector, "127.0.0.1", 0, security=security)
    (server,) = made
    try:
        yield server
    finally:
        stop()
        await server.serving
        server._sock.close()
        server._spare.close()


async def _apply(_: object) -> None:
    """Take any configuration."""


def _broker() -> Metrics:
    metrics = Metrics()
    metrics.gauge("groups", "Number of groups.", lambda: 1)
    metrics.requests.observe(1, 0.0)
    return metrics


def _mirror(partitions: int) -> MirrorMetrics:
    copied = tuple(
        PartitionStatus(
            topic="a-topic-of-a-usual-length",
            target_topic="t",
            partition=index,
            state=PartitionState.COPYING,
            source_end=50,
            lag_bytes=300,
            lag_seconds=1.5,
        )
        for index in range(partitions)
    )
    link = LinkStatus(name="a->b", source="a", target="b", partitions=copied)
    return MirrorMetrics(lambda: [link], Configured(parse, _apply))


class Users:
    """Everybody's password is ``right``."""

    async def verify(self, user: str, password: str, host: str) -> Principal | None:
        return Principal("User", user) if password == "right" and host else None


@asynccontextmanager
async def page(name: str, users: Path | None = None) -> AsyncIterator[ServerHere]:
    """The page of a kind of process. ``users``: a file of users; None: anyone may read it."""
    if name in {"agent", "mirror"}:
        collector: Collector = _mirror(10)
        if name == "agent":
            collector = AgentMetrics(AgentStatus, configured_agent(_apply))
        file = None if users is None else UsersFile(users)
        async with served(
            collector, PageSecurity(None, None if file is None else file.decide)
        ) as server:
            yield server
        return
    access = None if users is None else PageAccess(Users(), AccessControl(), delay_s=0)
    decide = None if access is None else access.decide
    security = PageSecurity(None, decide, "a secret" if access else "")
    async with served(_broker(), security) as broker:
        if name == "broker":
            yield broker
            return
        hub = WorkersMetrics("a secret")
        hub.workers[1] = WorkerState(1, broker.address[1], 0)
        async with served(hub, PageSecurity(None, hub.decide if access else None)) as server:
            yield server


def _sources() -> Iterator[tuple[str, ast.Module]]:
    root = Path(qbus.__file__).parent
    for directory, _, names in os.walk(root, followlinks=True):
        for path in (Path(directory) / name for name in names if name.endswith(".py")):
            text = path.read_text()
            if any(word in text for word in ("serve(", "serve_metrics(", "Server(", "Daemon(")):
                yield str(path.relative_to(root.parent)), ast.parse(text)


def _called(tree: ast.Module) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_no_page_is_missing() -> None:
    """All pages come from one function, which three modules call; two daemons use one of them."""
    serving: set[str] = set()
    daemons: set[str] = set()
    makers: set[str] = set()
    others: set[str] = set()
    for path, tree in _sources():
        for name in _called(tree):
            if name in {"serve_metrics", "prometheus.serve"}:
                serving.add(path)
            elif name == "Daemon":
                daemons.add(path)
            elif name.endswith("PageServer"):
                makers.add(path)
            elif name.rpartition(".")[2] in {"HTTPServer", "ThreadingHTTPServer"}:
                others.add(path)
    assert serving == set(_SERVERS)
    assert daemons == _DAEMONS
    assert makers == {"qbus/service/prometheus.py"}
    assert not others


@pytest.mark.parametrize("name", _PAGES)
async def test_no_request_holds_the_loop_or_memory(name: str) -> None:
    beyond = []
    async with page(name) as server:
        assert status(await server.ask(GET)) == 200  # imports what is needed
        tracemalloc.start()
        try:
            for why, (data, codes) in TABLE.items():
                assert len(data) < 1.4 * SIZE, why
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                async with Meter() as meter:
                    code = status(await server.ask(data))
                kept = tracemalloc.get_traced_memory()[1] - before
                line = f"{meter.most:6} calls, {kept >> 10:5} KB, {code}, {name}: {why}"
                print(line)
                allowed = codes | {0} if len(data) > http.MAX_HEAD else codes
                if meter.most > MOST_CALLS or kept > MOST_BYTES or code not in allowed:
                    beyond.append(line)
        finally:
            tracemalloc.stop()
        await eventually(lambda: not server.connections)
    assert not beyond, "\n".join(beyond)


class Clock:
    """The event loop's, which a test moves."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._ahead, real = 0.0, loop.time
        patch.setattr(loop, "time", lambda: real() + self._ahead)

    async def move(self, seconds: float) -> None:
        self._ahead += seconds
        for _ in range(20):
            await asyncio.sleep(0)


async def test_a_slow_sender_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with page("broker") as server:
        clock, loop = Clock(monkeypatch), asyncio.get_running_loop()
        with await server.connect() as client:
            for byte in GET[:9]:
                await loop.sock_sendall(client, bytes([byte]))
                await clock.move(1)
            await eventually(lambda: server.connections == 1)
            await clock.move(2)
            assert status(await received(client)) == 408
        await eventually(lambda: not server.connections)


async def test_a_slow_reader_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(_mirror(1000)) as server:
        clock = Clock(monkeypatch)
        client = await _slow_reader(server)
        await clock.move(RESPONSE_S - 5)
        assert server.connections == 1
        await clock.move(10)
        await eventually(lambda: not server.connections)
        client.close()


async def test_slow_readers_hold_no_more_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "MAX_SENDING", 1_000_000)  # of pages of 270 KB
    async with served(_mirror(1000)) as server:
        clients = [await _slow_reader(server) for _ in range(12)]
        await eventually(lambda: server.connections == 3)
        assert "read them too slowly" in caplog.text
        assert status(await server.ask(GET)) == 200
        for client in clients:
            client.close()
        await eventually(lambda: not server.connections)


async def _slow_reader(server: ServerHere) -> socket.socket:
    """A client that reads the beginning of the page, of which sockets keep little."""
    loop = asyncio.get_running_loop()
    server._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client = socket.socket()
    client.setblocking(False)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await loop.sock_connect(client, server.address)
    await loop.sock_sendall(client, GET)
    assert await loop.sock_recv(client, 15) == b"HTTP/1.1 200 OK"
    return client


async def test_more_connections_than_there_may_be() -> None:
    async with page("broker") as server:
        loop = asyncio.get_running_loop()
        clients = []
        async with Meter() as meter:
            for _ in range(server.most_connections + 100):
                client = await server.connect()
                await loop.sock_sendall(client, GET[:9])
                clients.append(client)
                assert server.connections <= server.most_connections
        assert meter.most <= MOST_CALLS
        await eventually(lambda: server.connections == server.most_connections)
        assert status(await server.ask(GET)) == 200
        for client in clients:
            client.close()
        await eventually(lambda: not server.connections)


@pytest.mark.parametrize("name", _PAGES)
async def test_without_credentials_nothing_is_rendered(name: str, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text("alice:right\n")

    def headers(user: str) -> bytes:
        return _headers(b"Authorization: Basic " + base64.b64encode(user.encode()))

    async with page(name, users) as server:
        assert status(await server.ask(headers("alice:right"))) == 200
        rendered = threading.Event()
        render = server._render

        def noticed(request: http.Request) -> http.Response:
            rendered.set()
            return render(request)

        server._render = noticed
        async with Meter() as meter:
            asked: list[Awaitable[bytes]] = [
                server.ask(data)
                for data in (
                    GET,
                    headers("alice:wrong"),
                    headers("bob:" + "x" * 10_000),
                    headers("u" * 10_000 + ":x"),
                    _headers(b"Authorization: " + b"Basic " * 2000),
                )
                * 3
            ]
            answers = await asyncio.gather(*asked)
        assert {status(answer) for answer in answers} == {HTTPStatus.UNAUTHORIZED}
        assert meter.most <= MOST_CALLS
        assert not rendered.is_set()
        assert status(await server.ask(headers("alice:right"))) == 200
        assert rendered.is_set()


class _Groups:
    """What groups have committed."""

    def __init__(self, committed: list[tuple[str, str, dict[int, int]]]) -> None:
        self._committed = committed

    def committed(self) -> list[tuple[str, str, dict[int, int]]]:
        return self._committed


async def _scrape(server: ServerHere, most_bytes: int) -> bytes:
    """The page of 10,000 partitions, which a thread makes while the loop goes on."""
    threads: list[int] = []
    render: Callable[[http.Request], http.Response] = server._render

    def noticed(request: http.Request) -> http.Response:
        threads.append(threading.get_ident())
        return render(request)

    server._render = noticed
    await server.ask(GET)  # imports what is needed
    tracemalloc.start()
    try:
        async with Meter() as meter:
            answer = await server.ask(GET)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"{meter.most:6} calls, {peak >> 20} MB, a page of {len(answer) >> 10} KB")
    assert status(answer) == 200
    assert meter.most <= MOST_CALLS
    assert peak <= most_bytes
    assert threading.get_ident() not in threads
    assert len(threads) == 2
    return answer


async def test_a_scrape_of_a_broker_with_many_partitions(tmp_path: Path) -> None:
    async with TransactionBroker.running(tmp_path) as plane:
        metrics = plane.broker.metrics
        offsets = dict.fromkeys(range(_PARTITIONS), 5)
        topic = SimpleNamespace(partitions=[SimpleNamespace(leader=-1)] * _PARTITIONS)
        metadata: Any = SimpleNamespace(topics={"topic": topic}, brokers={})
        metrics.gauge("leaderless_partitions", "Number.", lambda: leaderless_partitions(metadata))
        lag = GroupLag(
            _Groups([(f"group-{n}", f"topic-{n}", offsets) for n in range(10)]),  # type: ignore[arg-type]
            lambda *_: 7,
        )
        lag.register(metrics)
        async with served(metrics) as server:
            answer = await _scrape(server, 32 << 20)
        assert b'qbus_group_lag{group="group-9",topic="topic-9"} 20000.0' in answer
        assert b"qbus_leaderless_partitions 10000.0" in answer


async def test_a_scrape_of_a_mirror_with_many_partitions() -> None:
    async with served(_mirror(_PARTITIONS)) as server:
        answer = await _scrape(server, 128 << 20)
    assert answer.count(b"qbus_mirror_lag_seconds{") == _PARTITIONS
