"""Where bearer tokens come from: files, and token endpoints."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from qbus.errors import ConfigError, NoToken
from qbus.security.client import ClientSecurity
from qbus.security.tokens import token_source

URL = "sasl.oauthbearer.token.endpoint.url"
OWN = {"sasl.oauthbearer.client.id": "shipper", "sasl.oauthbearer.client.secret": "hunter2"}


class Endpoint(HTTPServer):
    """A token endpoint that answers what a test says."""

    answer: tuple[int, bytes] = (200, b'{"access_token":"t1","expires_in":60}')
    asked: list[tuple[str | None, dict[str, list[str]]]]


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.asked.append((self.headers["Authorization"], form))
        code, body = self.server.answer
        self.send_response(code)
        if code == 302:
            self.send_header("Location", body.decode())
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint(("127.0.0.1", 0), _Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_file_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    source = token_source({URL: f"file://{file}"})
    assert source() == "one"
    file.write_text("two")
    assert source() == "two"
    file.unlink()
    with pytest.raises(NoToken, match="token: No such file"):
        source()


def test_an_endpoint_is_asked_with_the_clients_credentials(endpoint: Endpoint) -> None:
    url = f"http://127.0.0.1:{endpoint.server_port}/token"
    source = token_source({URL: url, **OWN, "sasl.oauthbearer.scope": "kafka"})
    assert source() == "t1"
    ((authorization, form),) = endpoint.asked
    assert authorization == "Basic c2hpcHBlcjpodW50ZXIy"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert "hunter2" not in repr(source)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((401, b"{}"), "it answers 401"),
        ((302, b"http://127.0.0.1:1/elsewhere"), "it answers 302"),
        ((200, b"<html>"), "does not answer with JSON"),
        ((200, b"{}"), "has no access_token"),
        ((200, json.dumps({"access_token": 7}).encode()), "has no access_token"),
    ],
)
def test_an_endpoint_that_gives_none(
    endpoint: Endpoint, answer: tuple[int, bytes], message: str
) -> None:
    endpoint.answer = answer
    source = token_source({URL: f"http://127.0.0.1:{endpoint.server_port}", **OWN})
    with pytest.raises(NoToken, match=message) as caught:
        source()
    assert "hunter2" not in str(caught.value)
    assert caught.value.retriable


@pytest.mark.parametrize(
    "given",
    [
        {URL: "http://issuer.example/token", **OWN},
        {URL: "https://shipper:hunter2@issuer.example/token", **OWN},
        {URL: "https://issuer.example/token"},
        {"sasl.oauthbearer.scope": "kafka"},
    ],
)
def test_what_is_refused(given: dict[str, str]) -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer") as caught:
        ClientSecurity.from_properties({**login, **given})
    assert "hunter2" not in str(caught.value)
