"""`qbus trace`: the way of a record as people read it."""

from typing import Any

import pytest

from qbus.cli.failures import Failure
from qbus.cli.trace import _document, _read, _sentence
from qbus.clients import Admin
from qbus.clients.queue.history import TraceEvent
from qbus.clients.types import TopicPartition
from tests.unit.cli.queue.fake_queue import fake_queue


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        ({"event": "appended", "key": None, "size": 5}, "appended, 5 B"),
        ({"event": "delayed", "key": "k", "size": 5}, "taken in, 5 B, key k"),
        ({"event": "acknowledged"}, "done"),
        ({"event": "archived"}, "given up: nobody gets it any more"),
        ({"event": "begun", "start": 7}, "the group begins at offset 7"),
        ({"event": "forgotten"}, "the group was deleted"),
        ({"event": "result", "result": "42"}, "result: 42"),
        ({"event": "delivered"}, "delivered"),
        (
            {"event": "returned", "why": "refused", "deliveries": 2, "not_before": None},
            "given back: refused; given out 2 times so far",
        ),
    ],
)
def test_each_step_is_a_sentence(event: dict[str, Any], sentence: str) -> None:
    assert _sentence(event) == sentence


def test_times_are_told() -> None:
    assert _sentence({"event": "delayed", "key": None, "size": 5, "due": 0}).startswith(
        "taken in, 5 B; due 1970-01-01T"
    )
    assert _sentence({"event": "rescheduled", "due": 0}).startswith("rescheduled; due 19")
    returned = {"event": "returned", "why": "timed out", "deliveries": 1, "not_before": 0}
    assert "given out 1 time so far; not before 19" in _sentence(returned)


def test_bytes_are_text_for_programs() -> None:
    details = {"result": b"4\xff", "headers": (("h", b"x"), ("n", None)), "nacks": 1}
    assert _document(TraceEvent(5, 7, "result", "g", details)) == {
        "time": 5,
        "offset": 7,
        "event": "result",
        "group": "g",
        "result": "4\ufffd",
        "headers": [["h", "x"], ["n", None]],
        "nacks": 1,
    }


async def test_the_log_is_read_to_its_end() -> None:
    async with fake_queue() as fake:
        fake.store(b"0", b"1")
        fake.done(1, 1)
        fake.done(0, 0)
        async with Admin(fake.broker.bootstrap) as admin:
            events = await _read(admin, TopicPartition("q", 0), 0)
            assert [(event.what, event.offset) for event in events] == [
                ("appended", 0),
                ("acknowledged", 3),
            ]
            for offset in (3, 9):
                with pytest.raises(Failure, match=f"no record at offset {offset} of q-0"):
                    await _read(admin, TopicPartition("q", 0), offset)
