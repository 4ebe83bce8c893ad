"""Times and durations as people type them."""

from datetime import UTC, datetime

import pytest

from qbus.cli.units import (
    format_moment,
    format_seconds,
    format_size,
    parse_duration,
    parse_moment,
)

NOW = 1_767_225_600_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250ms", 250), ("90s", 90_000), ("15m", 900_000), ("1.5h", 5_400_000), ("7d", 604_800_000)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "5 m", "5y", "1e3s", "٣s", "1..5h"])
def test_invalid_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_a_moment_with_a_zone() -> None:
    expected = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000
    assert parse_moment("2026-03-01T12:00:00Z", NOW) == expected
    assert parse_moment("2026-03-01T13:00+01:00", NOW) == expected


def test_a_moment_without_a_zone_is_local() -> None:
    expected = datetime(2026, 3, 1, 12).astimezone().timestamp() * 1000
    assert parse_moment("2026-03-01 12:00", NOW) == expected


def test_a_date_is_its_first_moment() -> None:
    assert parse_moment("2026-03-01", NOW) == parse_moment("2026-03-01T00:00", NOW)


def test_seconds_since_the_epoch() -> None:
    assert parse_moment("@1767225600", NOW) == 1_767_225_600_000
    assert parse_moment("@1767225600000", NOW) == 1_767_225_600_000, "as they are printed"
    assert parse_moment("@0.25", NOW) == 250


def test_a_duration_is_that_long_ago() -> None:
    assert parse_moment("15m", NOW) == NOW - 900_000


@pytest.mark.parametrize("text", ["", "yesterday", "@", "@-1", "2026-13-01", "12:00", "1767225600"])
def test_invalid_moments(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_moment(text, NOW)


def test_a_formatted_moment_parses_to_the_same() -> None:
    assert parse_moment(format_moment(NOW + 123), 0) == NOW + 123


def test_missing_and_impossible_moments() -> None:
    assert format_moment(-1) == "-"
    assert format_moment(2**62) == str(2**62)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1_400_000, "1.4 MB"), (2e12, "2.0 TB"), (5e15, "5,000.0 TB")],
)
def test_sizes(count: float, text: str) -> None:
    assert format_size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.44, "0.4 s"),
        (95, "95 s"),
        (3_000, "50 min"),
        (12_600, "210 min"),
        (90_000, "25 h"),
        (30 * 86_400, "30 d"),
    ],
)
def test_ages(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
