"""Batches of parallel lists, by both twins."""

import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.records import Compression, build_batch, check_crc, encode_records, iter_records
from qbus.records import read_header as header_of

from .strategies import NOW, rows

pytestmark = pytest.mark.usefixtures("twin")


@given(
    st.lists(rows, min_size=1, max_size=30),
    st.sampled_from(Compression),
    st.integers(0, 2**40),
)
def test_what_goes_in_comes_out(items: list[Any], codec: Compression, base: int) -> None:
    keys, values, headers, times = map(list, zip(*items, strict=True))
    batch = encode_records(
        values,
        keys,
        headers,
        times,
        base_timestamp=base,
        compression=codec,
        producer_id=7,
        producer_epoch=8,
        base_sequence=9,
    )
    header = header_of(batch)
    check_crc(batch, header)
    given_times = [base if time is None else time for time in times]
    assert (header.base_timestamp, header.max_timestamp) == (base, max(given_times))
    assert header.records_count == header.last_offset_delta + 1 == len(items)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 8, 9)
    assert (header.base_offset, header.compression) == (0, codec)
    assert [(r.offset, r.key, r.value, r.headers, r.timestamp) for r in iter_records(batch)] == [
        (index, key, value, head or (), time)
        for index, (key, value, head, time) in enumerate(
            zip(keys, values, headers, given_times, strict=True)
        )
    ]


def test_golden_bytes() -> None:
    batch = encode_records([b"v"], [b"k"], [(("h", None),)], [5], base_timestamp=3)
    assert batch[61:].hex() == "16000400026b027602026801"
    assert struct.unpack_from(">qi", batch) == (0, len(batch) - 12)


@pytest.mark.parametrize("count", [64, 65, 8192, 8193, 70_000])
def test_where_an_offset_delta_grows_a_byte(count: int) -> None:
    values = [b"%d" % number for number in range(count)]
    batch = encode_records(values, base_timestamp=NOW)
    assert [r.value for r in iter_records(batch)] == values


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 8184, 8185, 8192, 1_048_577])
def test_where_a_length_grows_a_byte(size: int) -> None:
    batch = encode_records([bytes(size)] * 2, base_timestamp=NOW)
    assert batch == build_batch([(None, bytes(size), (), NOW)] * 2)
    assert [r.value for r in iter_records(batch)] == [bytes(size)] * 2


def test_bytes_like_objects_of_any_kind_are_taken() -> None:
    value, strided = bytearray(b"abcd"), memoryview(b"abcd")[::2]
    numbers = memoryview(struct.pack("=2i", 1, 2)).cast("i")
    batch = encode_records(
        [value, strided, numbers], (memoryview(b"k"), b"", None), base_timestamp=0
    )
    read = [(r.key, r.value) for r in iter_records(batch)]
    assert read == [(b"k", b"abcd"), (b"", b"ac"), (None, numbers.tobytes())]


def test_levels_are_the_codecs_own() -> None:
    values = [b"%d" % (number * number) for number in range(20_000)]
    for codec, low, high in ((Compression.GZIP, 1, 9), (Compression.ZSTD, 1, 19)):
        sizes = [
            len(encode_records(values, base_timestamp=0, compression=codec, level=level))
            for level in (low, high)
        ]
        assert sizes[1] < sizes[0]
    with pytest.raises(ValueError, match="snappy has no level 1"):
        encode_records(values, base_timestamp=0, compression=Compression.SNAPPY, level=1)


REFUSED: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (ValueError, "at least one record", {"values": []}),
    (ValueError, "1 keys for 2 values", {"keys": [b""]}),
    (ValueError, "3 headers for 2 values", {"headers": [None] * 3}),
    (ValueError, "0 timestamps for 2 values", {"timestamps": []}),
    (ValueError, "base timestamp .* does not fit", {"base_timestamp": 2**63}),
    (TypeError, "value 1 is not bytes-like but str", {"values": [b"", "text"]}),
    (TypeError, "value 1 is not bytes-like but int", {"values": [b"", 5]}),
    (TypeError, "key 0 is not bytes-like but str", {"keys": ["text", b""]}),
    (TypeError, "timestamp 0 is not an integer but float", {"timestamps": [1.5, 0]}),
    (ValueError, "timestamp 0 is out of range", {"timestamps": [2**63, 0]}),
    (ValueError, "timestamp 1 is out of range", {"timestamps": [0, 2**80]}),
    (
        ValueError,
        "timestamp 0 is out of range",
        {"timestamps": [2**63 - 1, 0], "base_timestamp": -1},
    ),
    (
        TypeError,
        "name of record 1 is not str but bytes",
        {"headers": [(), [(b"h", b"")]]},
    ),
    (TypeError, "value of record 0 is not bytes-like but str", {"headers": [[("h", "v")], ()]}),
]


@pytest.mark.parametrize(("error", "message", "arguments"), REFUSED)
def test_refused(error: type[Exception], message: str, arguments: dict[str, Any]) -> None:
    everything: dict[str, Any] = {"values": [b"", b""], "base_timestamp": 0}
    with pytest.raises(error, match=message):
        encode_records(**everything | arguments)


def test_lists_that_change_while_they_are_read_do_no_harm(twin: ModuleType) -> None:
    values: list[bytes] = [b"x" * 1000] * 100
    keys = [b"k"] * 100

    class Clearing(list):
        def __bool__(self) -> bool:
            values.clear()
            keys.clear()
            return True

        def __iter__(self) -> Any:
            values.clear()
            keys.clear()
            return iter([("h", b"v")])

    headers: list[Any] = [None] * 50 + [Clearing()] + [None] * 49
    batch, _ = twin.encode_lists(values, keys, headers, None, 0)
    assert bytes(batch[61:]).count(b"k" + b"\xd0\x0f" + b"x" * 1000) in {51, 100}
