"""What the lines mean that `qbus produce` reads: values, perhaps behind keys, or JSON objects."""

import json
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from qbus.cli.failures import Failure

Header = tuple[str, bytes | None]


class Columns(NamedTuple):
    """The parts of records, a list each; None where no record has such a part."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Sequence[Header] | None] | None = None
    timestamps: Sequence[int | None] | None = None


Parse = Callable[[Sequence[bytes]], Columns]
"""Takes lines without their newlines; returns what records they are. Raises Failure."""


def raw(separator: bytes | None) -> Parse:
    """Return the format of lines that are values, perhaps behind a key and ``separator``."""

    def parse(lines: Sequence[bytes]) -> Columns:
        return Columns(lines) if separator is None else Columns(*split_keys(lines, separator))

    return parse


def split_keys(lines: Sequence[bytes], separator: bytes) -> tuple[list[bytes], list[bytes | None]]:
    """Return the values and keys of lines; a key is the text before the first separator."""
    values: list[bytes] = []
    keys: list[bytes | None] = []
    for line in lines:
        before, found, after = line.partition(separator)
        values.append(after if found else line)
        keys.append(before if found else None)
    return values, keys


class JsonLines:
    """The format of lines that are JSON objects, as `qbus consume --format json` prints them.

    An object's topic, partition and offset are not used: those are what the new records get.
    """

    def __init__(self) -> None:
        self._line = 0

    def __call__(self, lines: Sequence[bytes]) -> Columns:
        """Parse lines; raises Failure that names the line."""
        records = []
        for line in lines:
            self._line += 1
            try:
                records.append(_record(json.loads(line)))
            except (ValueError, TypeError, KeyError, Base64Error) as error:
                reason = _reason(error)
                raise Failure(f"line {self._line} is not a record in JSON: {reason}") from error
        keys, values, headers, timestamps = zip(*records, strict=True) if records else ((),) * 4
        return Columns(values, keys, headers, timestamps)


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):  # it counts lines, but sees one of them
        return f"{error.msg} at character {error.pos + 1}"
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _record(fields: Any) -> tuple[bytes | None, bytes | None, list[Header] | None, int | None]:
    if not isinstance(fields, dict):
        raise TypeError(f"an object is expected, not {type(fields).__name__}")
    if "value" not in fields:
        raise KeyError("value")
    headers = [
        (str(header["key"]), _bytes(header, "value")) for header in fields.get("headers", ())
    ]
    timestamp = fields.get("timestamp")
    if timestamp is not None and (not isinstance(timestamp, int) or timestamp < 0):
        timestamp = None  # a record without a time
    return _bytes(fields, "key"), _bytes(fields, "value"), headers or None, timestamp


def _bytes(fields: dict[str, Any], name: str) -> bytes | None:
    text = fields.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"{name} is text or null, not {type(text).__name__}")
    if fields.get(f"{name}_encoding") == "base64":
        return b64decode(text, validate=True)
    return text.encode("utf-8", "surrogateescape")


def with_constants(
    parse: Parse, *, key: bytes | None, headers: Sequence[Header], timestamp: int | None
) -> Parse:
    """Return a format that gives every record these parts, where its line has none of its own."""

    def parse_all(lines: Sequence[bytes]) -> Columns:
        values, keys, own_headers, timestamps = parse(lines)
        if key is not None:
            keys = [key if own is None else own for own in keys or [None] * len(values)]
        if headers:
            own_headers = [[*headers, *(own or ())] for own in own_headers or [None] * len(values)]
        if timestamp is not None:
            timestamps = [
                timestamp if own is None else own for own in timestamps or [None] * len(values)
            ]
        return Columns(values, keys, own_headers, timestamps)

    if key is None and not headers and timestamp is None:
        return parse
    return parse_all
