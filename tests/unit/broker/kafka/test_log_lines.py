"""No request, however many things it changes, makes a line of the log that nobody can read."""

import logging

import pytest

from qbus.broker.kafka.log_lines import ChangedTopic, in_lines, tell_topics


def test_a_line_tells_of_a_hundred_things() -> None:
    assert list(in_lines(range(250))) == [range(100), range(100, 200), range(200, 250)]
    assert list(in_lines(["one"])) == [["one"]]
    assert list(in_lines([])) == []


def test_changed_topics_are_told_with_who_changed_them(caplog: pytest.LogCaptureFixture) -> None:
    topics = [ChangedTopic(f"t{number} is new", f"t{number}") for number in range(101)]
    with caplog.at_level("INFO"):
        tell_topics(logging.getLogger("of-a-test"), topics, "are new", "somebody")
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith("100 topics are new by somebody: t0, t1, ")
    assert second == "topic t100 is new by somebody"
