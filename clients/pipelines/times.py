"""Times and durations as text: in UTC and in the form of Spark's JSON."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def written(moment: datetime) -> str:
    """A time as ``2026-03-01T12:00:00.000Z``.

    A time without a zone is in the machine's zone, as Spark returns timestamps in Python.
    """
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def of_micros(micros: int) -> str:
    """The same for microseconds since 1970; beyond the year 9999, the number itself."""
    try:
        return written(_EPOCH + timedelta(microseconds=micros))
    except OverflowError:
        return f"{micros} us"


def interval(milliseconds: int) -> str:
    """A duration in milliseconds as an interval of Spark."""
    return f"{milliseconds} milliseconds"
