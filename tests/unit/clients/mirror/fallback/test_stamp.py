"""Headers that tell where a copy comes from."""

import pytest

from qbus.clients.mirror.fallback.stamp import last_stamp, origin_of, stamp_of, stamped
from qbus.records.record import Headers

HERE = origin_of("a", "orders")


def test_a_copy_tells_its_origin_behind_its_own_headers() -> None:
    headers = stamped((("h", b"1"), ("h", None)), HERE, 17)
    assert headers == (
        ("h", b"1"),
        ("h", None),
        ("qbus-origin", b"a.orders"),
        ("qbus-offset", b"17"),
    )
    assert stamp_of(tuple(headers), HERE) == 17


def test_a_copy_of_a_copy_is_known_by_the_last_copying() -> None:
    once = tuple(stamped((), origin_of("z", "orders"), 3))
    twice = tuple(stamped(once, HERE, 17))
    assert stamp_of(twice, HERE) == 17
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
def test_what_was_not_copied_from_there_has_no_stamp(headers: Headers) -> None:
    assert stamp_of(headers, HERE) is None


def test_the_last_stamp_is_the_largest_offset() -> None:
    records = [tuple(stamped((), HERE, offset)) for offset in (4, 9, 7)]
    assert last_stamp([(), *records], HERE) == 9
    assert last_stamp([()], HERE) is None
