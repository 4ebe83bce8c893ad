"""Times as results show them: in UTC, in the form that Spark gives them in JSON."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def written(moment: datetime) -> str:
    """A time as ``2026-03-01T12:00:00.000Z``; one without a zone is one of this machine's.

    That is what Spark makes of its timestamps in Python.
    """
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def of_micros(micros: int) -> str:
    """The same of microseconds since 1970; these themselves, for a year that dates do not have."""
    try:
        return written(_EPOCH + timedelta(microseconds=micros))
    except OverflowError:
        return f"{micros} us"


def interval(milliseconds: int) -> str:
    """A length in milliseconds as the text of an interval."""
    return f"{milliseconds} milliseconds"
