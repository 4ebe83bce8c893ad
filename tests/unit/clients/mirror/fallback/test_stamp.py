"""Headers that tell where a copy comes from."""

import pytest

from qbus.clients.mirror.fallback.stamp import Stamp, last_stamp, origin_of, stamp_of, stamped
from qbus.records.record import Headers

HERE = origin_of("a", "orders")


def test_a_copy_tells_its_origin_behind_its_own_headers() -> None:
    headers = stamped((("h", b"1"), ("h", None)), HERE, Stamp(17, "id"))
    assert headers == (
        ("h", b"1"),
        ("h", None),
        ("qbus-origin", b"a.orders"),
        ("qbus-offset", b"17"),
        ("qbus-topic-id", b"id"),
    )
    assert stamp_of(tuple(headers), HERE) == Stamp(17, "id")


def test_a_copy_of_a_copy_is_known_by_the_last_copying() -> None:
    once = tuple(stamped((), origin_of("z", "orders"), Stamp(3, "id")))
    twice = tuple(stamped(once, HERE, Stamp(17, "")))
    assert stamp_of(twice, HERE) == Stamp(17, "")
    assert stamp_of(twice, origin_of("z", "orders")) is None


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("qbus-offset", b"3"),),
        (("qbus-origin", b"a.orders"),),
        (("qbus-origin", b"a.stock"), ("qbus-offset", b"3")),
        (("qbus-origin", b"a.orders"), ("qbus-offset", b"-3")),
        (("qbus-origin", b"a.orders"), ("qbus-offset", b"")),
        (("qbus-origin", b"a.orders"), ("qbus-offset", None)),
        (("qbus-origin", b"a.orders"), ("qbus-offset", b"\xc2\xb2")),
        (("qbus-origin", None), ("qbus-offset", b"3")),
    ],
)
def test_records_of_other_origins_have_no_stamp(headers: Headers) -> None:
    assert stamp_of(headers, HERE) is None


def test_a_stamp_without_topic_id_has_an_empty_one() -> None:
    headers = (("qbus-origin", b"a.orders"), ("qbus-offset", b"3"))
    assert stamp_of(headers, HERE) == Stamp(3, "")
    assert stamp_of((*headers, ("qbus-topic-id", None)), HERE) == Stamp(3, "")


def test_the_last_stamp_is_the_largest_offset() -> None:
    stamps = (Stamp(4, "z"), Stamp(9, "a"), Stamp(7, "z"))
    records = [tuple(stamped((), HERE, stamp)) for stamp in stamps]
    assert last_stamp([(), *records], HERE) == Stamp(9, "a")
    assert last_stamp([()], HERE) is None
