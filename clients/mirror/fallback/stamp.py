"""Headers that tell where a record comes from. Pure.

``qbus-origin`` is the IDC and its topic, as ``a.orders``; ``qbus-offset`` the offset that the
record has there, in decimal digits. Copies of copies have several of each: the last two are of the
last copying.
"""

from collections.abc import Iterable, Sequence

from qbus.records.record import Headers

ORIGIN = "qbus-origin"
OFFSET = "qbus-offset"


def origin_of(idc: str, topic: str) -> bytes:
    """What the records of a topic of an IDC have as their origin."""
    return f"{idc}.{topic}".encode()


def stamped(headers: Headers, origin: bytes, offset: int) -> Sequence[tuple[str, bytes | None]]:
    """``headers`` with those of a copy behind them."""
    return (*headers, (ORIGIN, origin), (OFFSET, b"%d" % offset))


def stamp_of(headers: Headers, origin: bytes) -> int | None:
    """The offset that a record has at ``origin``; None if it was not copied from there."""
    last = dict(headers)
    digits = last.get(OFFSET)
    if last.get(ORIGIN) != origin or digits is None or not digits.isdigit():
        return None
    return int(digits)


def last_stamp(all_headers: Iterable[Headers], origin: bytes) -> int | None:
    """The largest offset of any record that was copied from ``origin``."""
    found = (stamp_of(headers, origin) for headers in all_headers)
    return max((offset for offset in found if offset is not None), default=None)
