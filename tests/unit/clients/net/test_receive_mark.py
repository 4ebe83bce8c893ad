"""How much a socket gathers before its reader is woken."""

import asyncio
import os
import socket
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qbus.clients.net import receive_mark
from qbus.clients.net.receive_mark import LARGE, MOST, ReceiveMark

gathering = pytest.mark.skipif(not receive_mark._CAN_GATHER, reason="this system does not gather")


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket() as made:
        yield made


class FakeTransport:
    """A transport of a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def get_extra_info(self, name: str) -> Any:
        """The socket."""
        return {"socket": self._sock}[name]


def mark_of(sock: socket.socket) -> ReceiveMark:
    return ReceiveMark(cast("asyncio.Transport", FakeTransport(sock)))


def low(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


@gathering
def test_what_is_large_is_gathered_and_never_more_than_is_to_come(sock: socket.socket) -> None:
    mark = mark_of(sock)
    for expected, at_most in ((LARGE, LARGE), (LARGE + 7, LARGE + 7), (100 * MOST, MOST)):
        mark.expect(expected)
        assert 1 < low(sock) <= at_most
    for expected in (LARGE - 1, 1):
        mark.expect(expected)
        assert low(sock) == 1


def test_a_closed_socket_is_left_alone(sock: socket.socket) -> None:
    mark = mark_of(sock)
    sock.close()
    mark.expect(MOST)


@pytest.mark.parametrize(
    ("platform", "release", "can"),
    [
        ("linux", "6.18.4-x", True),
        ("linux", "5.8.0", True),
        ("linux", "5.7.19", False),
        ("linux", "4.18.0-553.el8", False),
        ("linux", "unknown", False),
        ("darwin", "23.1.0", False),
    ],
)
def test_systems_that_may_not_wake_the_reader_do_not_gather(
    monkeypatch: pytest.MonkeyPatch, platform: str, release: str, can: bool
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    assert receive_mark._can_gather() is can
