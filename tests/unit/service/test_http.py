"""The page's server: what it answers, whom it lets in, and what it does not put up with."""

import asyncio
import base64
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http import HTTPStatus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.service.http import (
    MAX_HEAD,
    Asking,
    BadRequestError,
    Caller,
    PageServer,
    Request,
    Response,
    basic_credentials,
    listen,
    parse_request,
)
from tests.support.secure_broker import certificates

GET = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"


def page(request: Request) -> Response:
    if request.target == "/defect":
        raise RuntimeError("a defect")
    return Response(HTTPStatus.OK, f"page of {request.target}".encode(), {"Content-Type": "text"})


class Served:
    """A server, and raw clients of it."""

    def __init__(self, **options: object) -> None:
        sock = listen("127.0.0.1", 0)
        self.address = sock.getsockname()
        self.server = PageServer(sock, page, **options)  # type: ignore[arg-type]
        self.server.start()

    def ask(self, data: bytes, context: ssl.SSLContext | None = None) -> bytes:
        """Everything that comes back."""
        with closing(self.connect(context)) as client:
            client.sendall(data)
            return received(client)

    def connect(self, context: ssl.SSLContext | None = None) -> socket.socket:
        client = socket.create_connection(self.address, 5)
        return (
            client if context is None else context.wrap_socket(client, server_hostname="localhost")
        )

    def stop(self) -> None:
        self.server.stop()


def received(client: socket.socket) -> bytes:
    parts = []
    try:
        while data := client.recv(1 << 16):
            parts.append(data)
    except ConnectionError:
        pass
    return b"".join(parts)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.stop()


class TestRequests:
    def test_get(self, served: Served) -> None:
        answer = served.ask(GET)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"Connection: close\r\n\r\npage of /metrics")
        assert b"Content-Length: 16\r\n" in answer

    def test_head_has_no_body(self, served: Served) -> None:
        answer = served.ask(GET.replace(b"GET", b"HEAD"))
        assert b"Content-Length: 16\r\n" in answer
        assert answer.endswith(b"\r\n\r\n")

    def test_http_1_0(self, served: Served) -> None:
        assert status(served.ask(b"GET / HTTP/1.0\r\n\r\n")) == 200

    def test_what_arrives_in_pieces(self, served: Served) -> None:
        with closing(served.connect()) as client:
            for byte in GET:
                client.sendall(bytes([byte]))
            assert status(received(client)) == 200

    def test_one_connection_has_one_request(self, served: Served) -> None:
        assert served.ask(GET + GET).count(b"HTTP/1.1") == 1

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
    def test_other_methods(self, served: Served, method: str) -> None:
        answer = served.ask(GET.replace(b"GET", method.encode()))
        assert status(answer) == 405
        assert b"Allow: GET, HEAD\r\n" in answer

    @pytest.mark.parametrize(
        ("data", "code"),
        [
            (b"\r\n\r\n", 400),
            (b"GET /\r\n\r\n", 400),
            (b"GET / HTTP/2.0\r\n\r\n", 400),
            (b"GET  / HTTP/1.1\r\n\r\n", 400),
            (b"get / HTTP/1.1\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nbad name : x\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nx: a\nb: c\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nx: \0\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nAuthorization: a\r\nauthorization: b\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 413),
            (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
            (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 65 + b"\r\n", 431),
            (b"GET /%b HTTP/1.1\r\n\r\n" % (b"x" * 9000), 400),
            (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n", 400),
        ],
    )
    def test_malformed_ones(self, served: Served, data: bytes, code: int) -> None:
        assert status(served.ask(data)) == code
        assert status(served.ask(GET)) == 200

    @pytest.mark.parametrize("end", [b"", b"\0", b"y"])
    def test_headers_full_of_spaces_take_linear_time(self, end: bytes) -> None:
        """A pattern that backtracks over 1,500 spaces takes 4 s, and 80 minutes over 16 kB."""
        head = b"GET / HTTP/1.1\r\nx:" + b" \t" * 750 + end + b"\r\n\r\n"
        began = time.thread_time()
        with suppress(BadRequestError):
            assert parse_request(head).headers == {"x": end.decode()}
        assert time.thread_time() - began < 0.5

    def test_huge_ones(self, served: Served) -> None:
        answer = served.ask(b"GET / HTTP/1.1\r\nx: " + b"y" * (2 * MAX_HEAD))
        assert status(answer) in {431, 0}, "as far as it can still be said"
        assert status(served.ask(GET)) == 200

    def test_a_defect_of_the_page_is_an_error(self, served: Served) -> None:
        assert status(served.ask(b"GET /defect HTTP/1.1\r\n\r\n")) == 500
        assert status(served.ask(GET)) == 200

    def test_a_client_that_hangs_up(self, served: Served) -> None:
        for data in (b"", b"GET /", GET):
            client = served.connect()
            client.sendall(data)
            client.close()
        assert status(served.ask(GET)) == 200


class TestSlowOnes:
    def test_have_their_time(self) -> None:
        served = Served(request_s=0.2)
        with closing(served.connect()) as client:
            client.sendall(b"GET / HTTP/1.1\r\n")
            started = time.monotonic()
            assert status(received(client)) == 408
            assert time.monotonic() - started < 3
        served.stop()

    def test_drops_do_not_prolong_it(self) -> None:
        served = Served(request_s=0.3)
        with closing(served.connect()) as client:
            started = time.monotonic()
            try:
                while time.monotonic() - started < 5:
                    client.sendall(b"x")
                    time.sleep(0.05)
            except OSError:
                pass
            assert time.monotonic() - started < 3
        served.stop()

    def test_keep_nobody_out(self) -> None:
        served = Served(max_connections=8)
        idle = [served.connect() for _ in range(100)]
        for _ in range(5):
            assert status(served.ask(GET)) == 200
        for client in idle:
            client.close()
        served.stop()

    def test_nor_do_those_that_say_nothing_over_tls(self) -> None:
        context = certificates().context()
        served = Served(max_connections=8, tls=lambda: context)
        idle = [served.connect() for _ in range(50)]
        trusting = ssl.create_default_context(cafile=certificates().ca)
        assert status(served.ask(GET, trusting)) == 200
        for client in idle:
            client.close()
        served.stop()

    def test_stop_waits_for_nobody(self) -> None:
        served = Served()
        client = served.connect()
        client.sendall(b"GET /")
        started = time.monotonic()
        served.stop()
        assert time.monotonic() - started < 3
        client.close()


class TestWhoMayRead:
    @staticmethod
    def header(user: str, password: str) -> bytes:
        token = base64.b64encode(f"{user}:{password}".encode())
        return GET[:-2] + b"Authorization: Basic " + token + b"\r\n\r\n"

    def test_decides_somebody_else(self) -> None:
        seen: list[Caller] = []

        async def decide(caller: Caller) -> HTTPStatus:
            seen.append(caller)
            if caller.user is None or caller.password != "right":
                return HTTPStatus.UNAUTHORIZED
            return HTTPStatus.OK if caller.user == "alice" else HTTPStatus.FORBIDDEN

        served = Served(decide=decide)
        refused = served.ask(GET)
        assert status(refused) == 401
        assert b'WWW-Authenticate: Basic realm="qbus metrics", charset="UTF-8"' in refused
        assert b"page" not in refused.partition(b"\r\n\r\n")[2]
        assert status(served.ask(self.header("alice", "wrong"))) == 401
        assert status(served.ask(self.header("bob", "right"))) == 403
        assert status(served.ask(self.header("alice", "right"))) == 200
        assert {caller.host for caller in seen} == {"127.0.0.1"}
        assert "right" not in repr(seen)
        served.stop()

    def test_nobody_when_in_doubt(self) -> None:
        async def decide(_: Caller) -> HTTPStatus:
            raise RuntimeError("the store is gone")

        served = Served(decide=decide)
        assert status(served.ask(self.header("a", "b"))) == 503
        served.stop()

    def test_a_certificate_is_passed_on(self) -> None:
        made = certificates()
        seen: list[bytes | None] = []

        async def decide(caller: Caller) -> HTTPStatus:
            seen.append(caller.certificate)
            return HTTPStatus.OK

        context = made.context(asks=True)
        served = Served(tls=lambda: context, decide=decide)
        trusting = ssl.create_default_context(cafile=made.ca)
        trusting.load_cert_chain(made.client, made.client_key)
        assert status(served.ask(GET, trusting)) == 200
        assert seen[0] is not None
        served.stop()

    def test_a_process_that_knows_the_secret_may_ask_for_somebody(self) -> None:
        seen: list[Caller] = []

        async def decide(caller: Caller) -> HTTPStatus:
            seen.append(caller)
            return HTTPStatus.OK

        whom = Asking("10.1.2.3", self.credentials("alice", "right"), b"its certificate")
        served = Served(decide=decide, inner_secret="known to both")
        assert status(served.ask(self.stated(whom.headers("known to both")))) == 200
        assert seen == [Caller("10.1.2.3", "alice", "right", b"its certificate")]
        served.stop()

    @pytest.mark.parametrize(
        ("known", "said"), [("known to both", "guessed"), ("known to both", ""), ("", "")]
    )
    def test_nobody_else_is_believed(self, known: str, said: str) -> None:
        seen: list[Caller] = []

        async def decide(caller: Caller) -> HTTPStatus:
            seen.append(caller)
            return HTTPStatus.FORBIDDEN

        forged = Asking("10.1.2.3", "", b"somebody's certificate").headers(said)
        served = Served(decide=decide, inner_secret=known)
        assert status(served.ask(self.stated(forged))) == 403
        assert seen == [Caller("127.0.0.1")]
        served.stop()

    def credentials(self, user: str, password: str) -> str:
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def stated(self, headers: dict[str, str]) -> bytes:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return GET[:-2] + lines.encode() + b"\r\n"


class TestTls:
    def test_encrypts(self) -> None:
        context = certificates().context()
        served = Served(tls=lambda: context)
        trusting = ssl.create_default_context(cafile=certificates().ca)
        assert status(served.ask(GET, trusting)) == 200
        assert status(served.ask(b"GET / HTTP/1.1\r\n\r\n")) == 0, "plain text is no TLS"
        assert status(served.ask(GET, trusting)) == 200
        served.stop()


class TestCredentials:
    @pytest.mark.parametrize(
        ("header", "found"),
        [
            ("Basic " + base64.b64encode("ü:p:q".encode()).decode(), ("ü", "p:q")),
            ("basic " + base64.b64encode(b":").decode(), ("", "")),
            ("Basic " + base64.b64encode(b"nocolon").decode(), None),
            ("Basic !!!", None),
            ("Basic " + base64.b64encode(b"\xff:x").decode(), None),
            ("Bearer abc", None),
            ("", None),
        ],
    )
    def test_basic(self, header: str, found: tuple[str, str] | None) -> None:
        assert basic_credentials(header) == found


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    for head in (data, b"GET / HTTP/1.1\r\n" + data + b"\r\n\r\n"):
        request = parsed(head)
        if request is not None:
            assert request.method.isupper()
            assert not any("\n" in value for value in request.headers.values())


def parsed(head: bytes) -> Request | None:
    """The request; None: it is refused, and the client is to blame."""
    refusal: HTTPStatus | None = None
    try:
        return parse_request(head)
    except BadRequestError as error:
        refusal = error.status
    assert 400 <= refusal < 500
    return None


@given(st.text(alphabet=st.characters(max_codepoint=255), max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_header_has_credentials_or_none(header: str) -> None:
    found = basic_credentials(header)
    assert found is None or len(found) == 2


def test_memory_stays_bounded_while_many_send_without_end() -> None:
    served = Served(max_connections=16, request_s=2.0)
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            try:
                with closing(served.connect()) as client:
                    client.sendall(b"GET / HTTP/1.1\r\nx: " + b"y" * (4 * MAX_HEAD))
            except OSError:
                continue

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert [status(served.ask(GET)) for _ in range(10)] == [200] * 10
        assert len(served.server._tasks) <= 16
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        served.stop()


async def test_a_server_starts_and_stops_beside_a_loop() -> None:
    served = Served()
    assert status(await asyncio.to_thread(served.ask, GET)) == 200
    served.stop()
