"""The keys of tokens: when they are read, and what happens when they cannot be."""

import asyncio
import json
import threading
from http.client import BadStatusLine
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from qbus.broker.authentication.key_set import KeySet, fetch, shown
from tests.support.jwt_issuer import public_jwk, rsa_key, write_key_set


class Issuer:
    """Serves a key set, as long as it can, and counts how often."""

    def __init__(self) -> None:
        self.kids = ["one"]
        self.is_down = False
        self.reads = 0
        self.now = 0.0

    def read(self, _url: str) -> bytes:
        self.reads += 1
        if self.is_down:
            raise OSError("unreachable")
        return json.dumps({"keys": [public_jwk(rsa_key(), kid) for kid in self.kids]}).encode()

    def keys(self) -> KeySet:
        return KeySet(
            "https://issuer.example/keys?secret=1",
            refresh_s=60.0,
            retry_s=10.0,
            now=lambda: self.now,
            read=self.read,
        )


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


def kids(keys: KeySet) -> list[str | None]:
    return [key.kid for key in keys.find(None)]


async def test_keys_are_read_at_the_start_and_again_after_a_time(issuer: Issuer) -> None:
    keys = issuer.keys()
    assert kids(keys) == []
    await keys.look_after()
    assert kids(keys) == ["one"]
    issuer.kids = ["two", "three"]
    issuer.now = 59.0
    await keys.look_after()
    assert kids(keys) == ["one"]
    issuer.now = 60.0
    await keys.look_after()
    assert kids(keys) == ["two", "three"]
    assert [key.kid for key in keys.find("three")] == ["three"]
    assert keys.find("one") == []


async def test_unknown_keys_have_it_read_again_once_in_a_while(issuer: Issuer) -> None:
    keys = issuer.keys()
    await keys.look_after()
    issuer.now = 20.0
    assert await keys.reload()
    for _ in range(1000):
        assert not await keys.reload()
    assert issuer.reads == 2
    issuer.now = 30.0
    assert await keys.reload()
    assert issuer.reads == 3


async def test_many_who_ask_at_once_share_one_reading(issuer: Issuer) -> None:
    keys = issuer.keys()
    assert all(await asyncio.gather(*(keys.reload() for _ in range(100))))
    assert issuer.reads == 1


async def test_the_last_keys_stay_in_use(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    keys = issuer.keys()
    await keys.look_after()
    issuer.is_down = True
    for issuer.now in (60.0, 61.0, 75.0):
        await keys.look_after()
    assert kids(keys) == ["one"]
    assert keys.failures == 2
    assert "https://issuer.example/keys: unreachable" in caplog.text
    assert "secret" not in caplog.text
    issuer.is_down, issuer.kids, issuer.now = False, ["two"], 90.0
    await keys.look_after()
    assert kids(keys) == ["two"]


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"keys": []}', b"\xff", b"[" * 9999])
async def test_what_is_no_key_set_changes_nothing(content: bytes) -> None:
    keys = KeySet("file:///x", refresh_s=1, retry_s=1, now=lambda: 0.0, read=lambda _: content)
    await keys.look_after()
    assert keys.failures == 1
    assert keys.find(None) == []


async def test_an_issuer_that_does_not_speak_http_changes_nothing() -> None:
    def read(_: str) -> bytes:
        raise BadStatusLine("SSH-2.0")

    keys = KeySet("https://x", refresh_s=1, retry_s=1, now=lambda: 0.0, read=read)
    await keys.look_after()
    assert keys.failures == 1


async def test_a_file(tmp_path: Path) -> None:
    url = write_key_set(tmp_path / "a key set.json", public_jwk(rsa_key(), "one"))
    keys = KeySet(url, refresh_s=60, retry_s=1, now=lambda: 0.0)
    await keys.look_after()
    assert kids(keys) == ["one"]


def test_a_long_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b" " * (1024 * 1024 + 1))
    with pytest.raises(ValueError, match="longer"):
        fetch(path.as_uri())


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        fetch((tmp_path / "missing").as_uri())


def test_an_address_is_asked_and_redirects_are_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # which is not asked
    monkeypatch.delenv("no_proxy", raising=False)
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            is_moved = self.path == "/moved"
            self.send_response(302 if is_moved else 200)
            self.send_header("Location", "/keys")
            self.end_headers()
            self.wfile.write(b"keys")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            base = f"http://127.0.0.1:{server.server_port}"
            assert fetch(f"{base}/keys") == b"keys"
            with pytest.raises(OSError, match="302") as raised:
                fetch(f"{base}/moved")
            raised.value.close()  # type: ignore[attr-defined]  # an HTTPError is a response, too
        finally:
            server.shutdown()
            thread.join()
    assert asked == ["/keys", "/moved"]


def test_an_address_is_shown_without_its_secrets() -> None:
    assert shown("https://user:pw@host:1/path?token=x") == "https://host/path"
