"""Rules of the fields of pipelines."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from qbus.errors import ConfigError
from qbus.security.secret import is_reference, is_secret
from qbus.service.toml import Rule
from qbus.service.toml.rules import as_table, as_text, checked, listed, plain, real, topic

from ...net.bootstrap import parse

_UNITS_MS = {
    "ms": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_DURATION = re.compile(r"(\d{1,9})\s*([a-z]+)", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)


def bootstrap() -> Rule:
    """The address of a cluster."""
    return checked("host:port,... or zk://host:port,.../chroot", parse)


def duration(*, at_least_ms: int = 1) -> Rule:
    """A duration such as ``30 seconds`` or ``5m``, as milliseconds."""

    def read(raw: Any) -> int:
        found = milliseconds(as_text(raw))
        if found < at_least_ms:
            raise ValueError(f"at least {written(at_least_ms)}")
        return found

    return plain("a duration, such as 30 seconds, 5 minutes, 1h", read, written)


def milliseconds(text: str) -> int:
    """Parse ``30 seconds``, ``5m`` or ``250ms``; raises ValueError."""
    match = _DURATION.fullmatch(text.strip().lower())
    unit = match and (_UNITS_MS.get(match[2]) or _UNITS_MS.get(match[2].removesuffix("s")))
    if match is None or unit is None:
        raise ValueError
    return int(match[1]) * unit


def written(milliseconds: int) -> str:
    """A duration as :func:`milliseconds` reads it, in the largest unit that fits."""
    for unit in ("day", "hour", "minute", "second"):
        count, rest = divmod(milliseconds, _UNITS_MS[unit])
        if count and not rest:
            return f"{count} {unit}{'s' * (count != 1)}"
    return f"{milliseconds} ms"


def name() -> Rule:
    """A name that is also valid for a directory."""
    return _matching(_NAME, "a name: up to 64 ASCII letters, digits, '_' and '-'")


def topics() -> Rule:
    """Names of topics."""
    return listed(topic(), "a list of names of topics")


def topic_names() -> Rule:
    """A table of topics and their names in the copy."""

    def read(raw: Any) -> tuple[tuple[str, str], ...]:
        table = as_table(raw)
        topics().read([*table, *table.values()], "")
        return tuple(table.items())

    return plain("a table of topics and their names in the copy", read, dict)


def column() -> Rule:
    """A field of the lines."""
    return _matching(_COLUMN, "the name of a field, such as status or user.name")


def columns() -> Rule:
    """Fields of the lines."""
    several = listed(column(), 'a list of fields, such as ["status", "user.name"]')

    def read(raw: Any, place: str) -> Any:
        found = several.read(raw, place)
        if len(set(found)) < len(found):
            raise ValueError("a field is listed twice")
        return found

    return replace(several, read=read)


def options() -> Rule:
    """Options by name, as texts; secrets are elsewhere."""

    def read(raw: Any, place: str) -> tuple[tuple[str, str], ...]:
        found = tuple((key, _option(value)) for key, value in as_table(raw).items())
        for key, value in found:
            if key.startswith("kafka.") and is_secret(key) and not is_reference(value):
                expected = "expected file:PATH or env:NAME, not the secret itself"
                raise ConfigError(f'{place}."{key}": {expected}')
        return found

    return Rule('a table of options, such as {"kafka.request.timeout.ms" = 30000}', read, dict)


def types() -> Rule:
    """A table from fields to Spark's names of types."""

    def read(raw: Any) -> tuple[tuple[str, str], ...]:
        for key, value in as_table(raw).items():
            if not as_text(value).strip() or "." in key or not _COLUMN.fullmatch(key):
                raise ValueError(f"{key!r} = {value!r} is invalid")
        return tuple(raw.items())

    return plain('a table of fields and Spark types, such as {status = "int"}', read, dict)


def fractions() -> Rule:
    """Numbers from 0 to 1."""
    return listed(real(0, 1), "a list of numbers from 0 to 1, such as [0.5, 0.99]")


def moment() -> Rule:
    """A time in ISO 8601; UTC unless it names a zone."""

    def read(raw: Any) -> datetime:
        found = raw if isinstance(raw, datetime) else datetime.fromisoformat(as_text(raw))
        return found if found.tzinfo else found.replace(tzinfo=UTC)

    return plain("a time, such as 2026-03-01T12:00:00Z", read, datetime.isoformat)


def _matching(pattern: re.Pattern[str], allowed: str) -> Rule:
    def read(raw: Any) -> str:
        if not pattern.fullmatch(as_text(raw)):
            raise ValueError
        return as_text(raw)

    return plain(allowed, read)


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    return as_text(value)
