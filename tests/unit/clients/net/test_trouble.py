"""A client says what it waits for: soon, then less and less often, and when it is over."""

import logging

import pytest

from qbus.clients.net.trouble import TroubleLog

REFUSED = "Connection refused"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def troubles(clock: Clock, caplog: pytest.LogCaptureFixture) -> TroubleLog:
    caplog.set_level(logging.INFO, "qbus.clients.net.trouble")
    return TroubleLog("app", clock)


def test_the_first_failure_is_said_at_once(
    troubles: TroubleLog, caplog: pytest.LogCaptureFixture
) -> None:
    troubles.met("broker a:1", REFUSED)
    assert caplog.messages == ["app waits for broker a:1: Connection refused; trying again"]
    assert caplog.records[0].levelno == logging.WARNING


def test_it_is_said_again_after_2_4_8_and_at_most_60_seconds(
    troubles: TroubleLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    begin, said = clock.now, []
    while clock.now < begin + 250:
        before = len(caplog.messages)
        troubles.met("broker a:1", REFUSED)
        if len(caplog.messages) > before:
            said.append(clock.now - begin)
        clock.now += 0.5
    assert said == [0, 2, 6, 14, 30, 62, 122, 182, 242]
    assert caplog.messages[1].endswith("trying again (2 s so far)")


def test_what_passes_within_its_grace_is_not_said(
    troubles: TroubleLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    troubles.met("topic t", "no leader", grace=1.0)
    clock.now += 0.9
    troubles.met("topic t", "no leader", grace=1.0)
    troubles.solved("topic t")
    assert caplog.messages == []
    troubles.met("topic t", "no leader", grace=1.0)
    clock.now += 1.0
    troubles.met("topic t", "no leader", grace=1.0)
    assert caplog.messages == ["app waits for topic t: no leader; trying again"]


def test_the_end_is_said_if_the_trouble_was(
    troubles: TroubleLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    troubles.met("broker a:1", REFUSED)
    assert troubles
    clock.now += 7
    troubles.solved("broker a:1")
    troubles.solved("broker a:1")
    assert caplog.messages[1:] == ["app has broker a:1 again after 7 s"]
    assert not troubles


def test_a_trouble_of_long_ago_is_a_new_one(
    troubles: TroubleLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    troubles.met("broker a:1", REFUSED)
    clock.now += 1000
    troubles.met("broker b:1", REFUSED)
    troubles.met("broker a:1", REFUSED)
    assert len(caplog.messages) == 3
    assert caplog.messages[2].endswith("; trying again")


def test_what_is_given_up_has_no_end(
    troubles: TroubleLog, caplog: pytest.LogCaptureFixture
) -> None:
    troubles.met("topic t", "no leader")
    troubles.drop("topic t")
    troubles.solved("topic t")
    assert len(caplog.messages) == 1
    assert not troubles


def test_of_thousands_twenty_are_named(
    troubles: TroubleLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        for index in range(1000):
            troubles.met(f"t-{index}", "no leader", grace=1.0)
        clock.now += 0.5
    named = {line for line in caplog.messages if line.endswith("no leader; trying again")}
    assert len(named) == 20
    (more,) = (line for line in caplog.messages if "more" in line)
    assert more == "app waits for 980 more, which are not named"
