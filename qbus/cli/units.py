"""Times, durations and sizes as people write and read them."""

import re
from datetime import datetime

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGES = ((600, 1, "s"), (36_000, 60, "min"), (172_800, 3_600, "h"), (None, 86_400, "d"))
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", re.ASCII)
_UNIX_TIME = re.compile(r"@(\d+(?:\.\d+)?)", re.ASCII)

#: Seconds since the epoch reach this in the year 5138, milliseconds did in 1973.
_FIRST_MS = 1e11


def parse_duration(text: str) -> int:
    """Return ``90s``, ``15m`` or ``1.5h`` in milliseconds; ValueError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 90s, 15m, 2h or 7d")
    return round(float(match[1]) * _UNITS_MS[match[2]])


def parse_moment(text: str, now_ms: int) -> int:
    """Return a moment in milliseconds since the epoch; ValueError when it is none.

    A date or time in ISO 8601 (local unless it names a zone), ``@`` and seconds or milliseconds
    since the epoch, or a duration, which means that long before ``now_ms``.
    """
    text = text.strip()
    if match := _UNIX_TIME.fullmatch(text):
        stated = float(match[1])
        return round(stated if stated >= _FIRST_MS else stated * 1000)
    if _DURATION.fullmatch(text):
        return now_ms - parse_duration(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not a time such as 2026-03-01T12:00, @1767225600 or 15m (ago)"
        ) from None


def format_moment(milliseconds: int) -> str:
    """Return a timestamp as local ISO 8601 time, or ``-`` for none."""
    if milliseconds < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
    return moment.isoformat(timespec="milliseconds")


def format_size(count: float) -> str:
    """Return a number of bytes in decimal units: ``1.4 MB``."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if abs(count) < 1000 or unit == "TB":
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def format_seconds(seconds: float) -> str:
    """Return an age: ``0.4 s``, ``95 s``, ``3.5 h``."""
    size, unit = next(
        (size, unit) for limit, size, unit in _AGES if limit is None or abs(seconds) < limit
    )
    count = seconds / size
    return f"{count:,.1f} {unit}" if abs(count) < 10 else f"{count:,.0f} {unit}"


def counted(count: int, noun: str) -> str:
    """Return a number and its noun: ``1 record``, ``2,000 records``."""
    return f"{count:,} {noun}{'s' * (count != 1)}"
