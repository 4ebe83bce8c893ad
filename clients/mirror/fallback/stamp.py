"""Headers that tell the origin of a record. Pure.

``qbus-origin`` is the datacenter and its topic, such as ``a.orders``; ``qbus-offset`` the record's
offset there, in decimal digits; ``qbus-topic-id`` the topic's id where it is written, empty if it
has none. Copies of copies have several of each: the last ones count.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from qbus.records.record import Headers

ORIGIN = "qbus-origin"
OFFSET = "qbus-offset"
TOPIC_ID = "qbus-topic-id"


class Stamp(NamedTuple):
    """The offset of a record at its origin, and the id of the topic there, "" for none."""

    offset: int
    topic_id: str


def origin_of(idc: str, topic: str) -> bytes:
    """Return the origin of the records of a datacenter's topic."""
    return f"{idc}.{topic}".encode()


def stamped(headers: Headers, origin: bytes, stamp: Stamp) -> Sequence[tuple[str, bytes | None]]:
    """Return ``headers`` followed by those of a copy."""
    return (
        *headers,
        (ORIGIN, origin),
        (OFFSET, b"%d" % stamp.offset),
        (TOPIC_ID, stamp.topic_id.encode()),
    )


def stamp_of(headers: Headers, origin: bytes) -> Stamp | None:
    """Return the stamp of a record that was copied from ``origin``; None: it was not."""
    last = dict(headers)
    digits = last.get(OFFSET)
    if last.get(ORIGIN) != origin or digits is None or not digits.isdigit():
        return None
    return Stamp(int(digits), (last.get(TOPIC_ID) or b"").decode(errors="replace"))


def last_stamp(all_headers: Iterable[Headers], origin: bytes) -> Stamp | None:
    """Return the stamp with the largest offset of the records copied from ``origin``."""
    found = (stamp_of(headers, origin) for headers in all_headers)
    return max((stamp for stamp in found if stamp is not None), default=None)
