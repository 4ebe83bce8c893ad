"""Connections whose clients have yet to say who they are."""

import logging
from types import SimpleNamespace

import pytest

from qbus.broker.net.unauthenticated import Unauthenticated

FLOODER, HONEST = "10.0.0.9", "10.0.0.1"


class Connection:
    def __init__(self, host: str = FLOODER) -> None:
        self.peer = SimpleNamespace(host=host, is_authenticated=False)
        self.closed = ""

    def close(self, reason: str) -> None:
        self.closed = reason


def add(waiting: Unauthenticated, count: int, host: str = FLOODER) -> list[Connection]:
    made = [Connection(host) for _ in range(count)]
    for one in made:
        waiting.add(one, 0.0)
    return made


def test_up_to_the_limit_all_may_wait() -> None:
    waiting = Unauthenticated(3, "SASL")
    made = add(waiting, 3)
    assert not any(one.closed for one in made)
    assert len(waiting) == 3


def test_above_it_the_oldest_goes() -> None:
    waiting = Unauthenticated(3, "SASL")
    made = add(waiting, 5)
    assert [bool(one.closed) for one in made] == [True, True, False, False, False]
    assert made[0].closed == "more than 3 clients have not authenticated"
    assert waiting.closed == 2


def test_who_has_authenticated_is_not_closed_and_does_not_count() -> None:
    waiting = Unauthenticated(3, "SASL")
    made = add(waiting, 3)
    for one in made[:2]:
        one.peer.is_authenticated = True
    more = add(waiting, 2)
    assert not any(one.closed for one in made + more)
    add(waiting, 1)
    assert [bool(one.closed) for one in made + more] == [False, False, True, False, False]


def test_who_is_gone_does_not_count() -> None:
    waiting = Unauthenticated(1, "SASL")
    (gone,) = add(waiting, 1)
    waiting.discard(gone)
    assert not add(waiting, 1)[0].closed


def test_honest_clients_get_through_a_flood() -> None:
    waiting = Unauthenticated(1000, "SASL")
    for _ in range(50):
        add(waiting, 900)
        (honest,) = add(waiting, 1, HONEST)
        add(waiting, 900)
        assert not honest.closed
        honest.peer.is_authenticated = True
    assert len(waiting) <= 1000
    add(waiting, 5000)
    assert not honest.closed


def test_a_line_a_minute_says_from_where(caplog: pytest.LogCaptureFixture) -> None:
    waiting = Unauthenticated(10, "EXTERNAL")
    add(waiting, 3, HONEST)
    add(waiting, 1000)
    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    for text in (FLOODER, "EXTERNAL", "sasl.max.unauthenticated.connections", "8 of them"):
        assert text in told.getMessage()
    waiting.add(Connection(), 61.0)
    assert len(caplog.records) == 2
    assert "993 closed" in caplog.records[1].getMessage()
