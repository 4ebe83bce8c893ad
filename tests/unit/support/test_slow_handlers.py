"""What held the event loops of servers is read from their logs."""

from pathlib import Path

import pytest

from qbus.service.event_loop import SlowHandlers, Ticks
from tests.support.slow_handlers import VARIABLE, keep, slow_handlers, table

_NAME = "2026-01-01T00:00:00 WARNING qbus.service.event_loop.slow: "


def log_of(slow: SlowHandlers, caplog: pytest.LogCaptureFixture) -> str:
    caplog.set_level("INFO")
    slow.note("PRODUCE", 100.0, 100.5, "10.0.0.7 (client 'a (b)', User:alice)")
    slow.note("PRODUCE", 101.0, 101.3, "10.0.0.7 (client 'a', User:alice)")
    slow.note("task leadership lease", 102.0, 102.25)
    slow.note("PRODUCE", 120.0, 120.2, "10.0.0.7 (client 'a', User:alice)")
    return "".join(f"{_NAME}{message}\nanother line\n" for message in caplog.messages)


def test_lines_as_they_are_logged_are_read(caplog: pytest.LogCaptureFixture) -> None:
    slow = SlowHandlers(Ticks(), lambda: 0.15)
    slow.cpu_before = lambda _: 0.0
    found = [one[:5] for one in slow_handlers(log_of(slow, caplog))]
    assert found == [
        ("PRODUCE", 0.5, 0.15, "", 1),
        ("task leadership lease", 0.25, 0.15, "", 1),
        ("PRODUCE", 0.2, 0.15, "", 2),
    ]


def test_a_table_has_a_line_for_each_handler(caplog: pytest.LogCaptureFixture) -> None:
    lines = table(slow_handlers(log_of(SlowHandlers(Ticks()), caplog))).splitlines()
    assert len(lines) == 3
    assert lines[1].split()[:2] == ["3", "0.500"]


def test_they_are_kept_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_of(SlowHandlers(Ticks()), caplog)
    monkeypatch.delenv(VARIABLE, raising=False)
    keep(log)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "slow"))
    keep(log)
    keep(log)
    assert len((tmp_path / "slow").read_text().splitlines()) == 6
