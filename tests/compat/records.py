"""Records of the tests, and samples that a round trip must bring back byte for byte."""

import time
from typing import NamedTuple


class Record(NamedTuple):
    """A record as an application sees it; the timestamp is in milliseconds, None for now."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None


class Stored(NamedTuple):
    """A record and where a consumer found it."""

    partition: int
    offset: int
    record: Record


#: Long enough ago that no clock calls it the future, recent enough that no retention deletes it.
START_MS = int(time.time() * 1000) - 3_300_000

BINARY = (
    Record(b"key", b"value", (), START_MS),
    Record(None, b"no key", (), START_MS + 1),
    Record(b"no value", None, (), START_MS + 2),
    Record(b"", b"", (), START_MS + 4),
    Record(bytes(range(256)), bytes(range(256)), (), START_MS + 5),
    Record("ключ".encode(), "значение 値".encode(), (), START_MS + 6),
    Record(b"h", b"v", (("one", b"1"), ("one", b"2"), ("empty", b"")), START_MS + 7),
    Record(b"h", b"v", (("ключ", b"\x00\xff"),), START_MS + 8),
    Record(b"long", b"0123456789" * 10_000, (), START_MS + 9),
)
NULL_HEADER = Record(b"h", b"v", (("null", None), ("x", b"1")), START_MS + 10)
NOTHING = Record(None, None, (), START_MS + 11)

#: For clients that read their records from lines of text.
TEXT = (
    Record(b"key", b"value"),
    Record("ключ".encode(), "значение 値".encode()),
    Record(b"empty", b""),
    Record(b"long", b"0123456789" * 10_000),
)


def numbered(count: int, size: int = 10) -> list[Record]:
    """Return distinct records of ``size`` bytes, a second apart by their timestamps."""
    return [
        Record(None, str(number).encode().zfill(size), (), START_MS + number * 1000)
        for number in range(count)
    ]
