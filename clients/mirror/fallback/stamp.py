"""Headers that tell where a record comes from. Pure.

``qbus-origin`` is the IDC and its topic, as ``a.orders``; ``qbus-offset`` the offset that the
record has there, in decimal digits; ``qbus-topic-id`` the topic's id where it is written, empty if
it has none. Copies of copies have several of each: the last ones are of the last copying.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from qbus.records.record import Headers

ORIGIN = "qbus-origin"
OFFSET = "qbus-offset"
TOPIC_ID = "qbus-topic-id"


class Stamp(NamedTuple):
    """The offset that a record has at its origin, and the id of the topic there, "" for none."""

    offset: int
    topic_id: str


def origin_of(idc: str, topic: str) -> bytes:
    """What the records of a topic of an IDC have as their origin."""
    return f"{idc}.{topic}".encode()


def stamped(headers: Headers, origin: bytes, stamp: Stamp) -> Sequence[tuple[str, bytes | None]]:
    """``headers`` with those of a copy behind them."""
    return (
        *headers,
        (ORIGIN, origin),
        (OFFSET, b"%d" % stamp.offset),
        (TOPIC_ID, stamp.topic_id.encode()),
    )


def stamp_of(headers: Headers, origin: bytes) -> Stamp | None:
    """What a record tells that was copied from ``origin``; None of one that was not."""
    last = dict(headers)
    digits = last.get(OFFSET)
    if last.get(ORIGIN) != origin or digits is None or not digits.isdigit():
        return None
    return Stamp(int(digits), (last.get(TOPIC_ID) or b"").decode(errors="replace"))


def last_stamp(all_headers: Iterable[Headers], origin: bytes) -> Stamp | None:
    """That with the largest offset, of the records that were copied from ``origin``."""
    found = (stamp_of(headers, origin) for headers in all_headers)
    return max((stamp for stamp in found if stamp is not None), default=None)
