"""Reaching a host: by whichever of its addresses answers, and never for longer than allowed."""

import asyncio
import socket
from typing import Any

import pytest

from qbus.clients import ConnectionFailed, RequestTimedOut
from qbus.clients.net.dial import dial


@pytest.fixture
def listener() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def resolving_to(*addresses: tuple[str, int]) -> Any:
    async def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)
            for address in addresses
        ]

    return getaddrinfo


def stub_names(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "getaddrinfo", resolving_to(*addresses), raising=False)


def stub_connect(monkeypatch: pytest.MonkeyPatch, silent: tuple[str, int]) -> None:
    loop = asyncio.get_running_loop()
    connect = loop.sock_connect

    async def sock_connect(sock: socket.socket, address: Any) -> None:
        await (asyncio.sleep(3600) if address == silent else connect(sock, address))

    monkeypatch.setattr(loop, "sock_connect", sock_connect, raising=False)


async def test_a_listener_is_reached(listener: socket.socket) -> None:
    host, port = listener.getsockname()
    with await dial(host, port, 5.0) as sock:
        assert sock.getpeername() == listener.getsockname()
        assert sock.gettimeout() == 0.0
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


async def test_a_dead_address_is_passed_over(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub_names(monkeypatch, ("127.0.0.1", 1), listener.getsockname())
    with await dial("several.test", 0, timeout=5.0) as sock:
        assert sock.getpeername() == listener.getsockname()


async def test_a_silent_address_takes_only_its_share(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = ("127.0.0.2", 9)
    stub_names(monkeypatch, silent, listener.getsockname())
    stub_connect(monkeypatch, silent)
    with await dial("several.test", 0, timeout=0.2) as sock:
        assert sock.getpeername() == listener.getsockname()


async def test_silence_is_a_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = ("127.0.0.2", 9)
    stub_connect(monkeypatch, silent)
    with pytest.raises(RequestTimedOut, match=r"127\.0\.0\.2:9"):
        await dial(*silent, 0.05)


async def test_a_name_server_that_says_nothing_is_a_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def getaddrinfo(*_: Any, **__: Any) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
    with pytest.raises(RequestTimedOut):
        await dial("slow.test", 9092, timeout=0.05)


async def test_a_refusal_says_which_address() -> None:
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1: .*refused"):
        await dial("127.0.0.1", 1, timeout=5.0)


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("a" * 300, 9092),
        ("a\0b", 9092),
        ("", 0),
        ("127.0.0.1", 99_999),
        ("127.0.0.1", -1),
        ("\ud800", 9092),
        ("256.256.256.256", 9092),
    ],
)
async def test_an_address_that_is_no_host_is_a_failed_connection(host: str, port: int) -> None:
    with pytest.raises(ConnectionFailed):
        await dial(host, port, timeout=5.0)


async def test_an_unknown_name_is_told_in_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
    with pytest.raises(ConnectionFailed) as failure:
        await dial("nosuch.test", 9092, timeout=5.0)
    assert str(failure.value).startswith("nosuch.test:9092: Name or service not known")
