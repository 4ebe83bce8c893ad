"""OpenTelemetry's metrics as clients push them, and bytes that are none."""

import math
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.broker.telemetry.otlp import PIECE, Malformed, Point, read_points

from .protobuf import (
    attribute,
    data,
    double,
    fixed,
    gauge,
    histogram,
    message,
    text,
    total,
    varint,
)


def points(encoded: bytes, most: int = 100) -> list[Point]:
    return read_points(memoryview(encoded), most)


def test_gauges_and_sums_have_values_of_both_kinds() -> None:
    encoded = data(
        gauge("lag", double(4, 2.5)), total("sent", fixed(6, 7)), gauge("below", fixed(6, -3))
    )
    assert points(encoded) == [
        Point("lag", (), 2.5),
        Point("sent", (), 7.0),
        Point("below", (), -3.0),
    ]


def test_attributes_tell_the_values_of_a_metric_apart() -> None:
    encoded = data(
        gauge(
            "lag",
            attribute(7, "topic", text(1, "t"))
            + attribute(7, "p", varint(3 << 3) + varint(1))
            + double(4, 1.0),
            attribute(7, "ok", varint(2 << 3) + b"\1") + double(4, 2.0),
            attribute(7, "share", double(4, 0.5)) + double(4, 3.0),
        )
    )
    assert [point.attributes for point in points(encoded)] == [
        (("p", "1"), ("topic", "t")),
        (("ok", "true"),),
        (("share", "0.5"),),
    ]


def test_a_negative_attribute() -> None:
    minus_one = varint(3 << 3) + varint(2**64 - 1)
    (point,) = points(data(gauge("m", attribute(7, "n", minus_one) + double(4, 0.0))))
    assert point.attributes == (("n", "-1"),)


def test_a_histogram_is_its_count_and_its_sum() -> None:
    encoded = data(histogram("latency", fixed(4, 10) + double(5, 2.5)))
    assert points(encoded) == [Point("latency.count", (), 10.0), Point("latency.sum", (), 2.5)]


def test_a_value_that_is_not_known_is_left_out() -> None:
    assert points(data(gauge("m", fixed(3, 1)))) == []


def test_unknown_fields_are_skipped() -> None:
    strange = varint(99 << 3) + varint(5) + message(98, b"x") + varint(97 << 3 | 5) + b"1234"
    assert points(strange + data(gauge("m", strange + double(4, 1.0)))) == [Point("m", (), 1.0)]


def test_nothing_is_no_metrics() -> None:
    assert points(b"") == []


def test_no_more_values_are_read_than_are_wanted() -> None:
    many = data(*[gauge(f"m{number}", double(4, 1.0)) for number in range(50)])
    assert len(points(many, most=7)) == 7


def test_a_long_name_is_cut() -> None:
    (point,) = points(data(gauge("m" * 10_000, double(4, 1.0))))
    assert len(point.name) == 200


def test_numbers_that_are_none_stay_what_they_are() -> None:
    (first, second) = points(data(gauge("m", double(4, math.nan), double(4, math.inf))))
    assert math.isnan(first.value)
    assert second.value == math.inf


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x00",
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0b",
        b"\x0f\x01",
        b"\x80" * 20,
        varint(1 << 3) + varint(5),
        data(text(1, "m") + varint(5 << 3) + varint(1)),
        data(gauge("m", varint(4 << 3) + varint(1))),
        data(gauge("m", message(4, b"1234567"))),
    ],
)
def test_what_is_malformed_is_refused(encoded: bytes) -> None:
    with pytest.raises(Malformed):
        points(encoded)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_refused(encoded: bytes) -> None:
    with suppress(Malformed):
        points(encoded)


@settings(max_examples=100)
@given(st.data())
def test_what_is_damaged_is_read_or_refused(draw: st.DataObject) -> None:
    encoded = bytearray(data(gauge("m", attribute(7, "topic", text(1, "t")) + double(4, 1.0))))
    at = draw.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = draw.draw(st.integers(0, 255))
    with suppress(Malformed):
        points(bytes(encoded))


def test_only_so_many_fields_are_looked_at() -> None:
    encoded = memoryview(data(*[gauge("m")] * 100))
    assert read_points(encoded, 10, most_fields=1000) == []
    with pytest.raises(Malformed, match="more than 100 fields"):
        read_points(encoded, 10, most_fields=100)


def test_others_may_work_in_between() -> None:
    pauses: list[None] = []
    read_points(memoryview(b"\x0a\0" * 10 * PIECE), 10, pause=lambda: pauses.append(None))
    assert len(pauses) == 10
