"""What one batch may hold: bytes by its compressed size, and headers of a record."""

from collections.abc import Callable
from typing import Any

import pytest

from qbus.errors import OversizedBatch
from qbus.records import BatchHeader, RecordColumns, build_batch, codec, pure, read_header
from qbus.records.bounds import MAX_HEADERS, MAX_RECORDS_SIZE, most_bytes
from qbus.records.compact import OffsetMap, PortableOffsetMap, keyless, portable_keyless
from qbus.records.decode import bounded_records_of, iter_records
from qbus.records.header import HEADER_SIZE, Compression
from qbus.records.plain import may_have_header, portable_may_have_header

MIB = 1 << 20


def with_headers(count: int) -> tuple[bytes, BatchHeader]:
    """A batch whose only record has ``count`` headers."""
    batch = bytes(build_batch([(b"k", b"v", (("h", None),) * count, 0)]))
    return batch, read_header(batch)


@pytest.mark.parametrize(
    ("compressed", "most"),
    [(100, 16 * MIB), (MIB // 2, 16 * MIB), (MIB, 32 * MIB), (32 * MIB, MAX_RECORDS_SIZE)],
)
def test_a_batch_may_be_large_if_it_is_large_compressed(compressed: int, most: int) -> None:
    assert most_bytes(compressed) == most


def test_a_ceiling_is_never_passed() -> None:
    assert most_bytes(100, MIB) == MIB
    assert most_bytes(32 * MIB, 20 * MIB) == 20 * MIB


@pytest.mark.parametrize("size", [16 * MIB - 1000, 17 * MIB])
def test_a_broker_reads_what_the_bound_allows(size: int) -> None:
    batch = bytes(build_batch([(None, bytes(size), (), 0)], compression=Compression.ZSTD))
    if size < 16 * MIB:
        assert bounded_records_of(batch, read_header(batch)) is not None
    else:
        with pytest.raises(OversizedBatch, match="larger than 16777216"):
            bounded_records_of(batch, read_header(batch))


@pytest.mark.parametrize("twin", [codec.twin, pure])
def test_a_record_has_bounded_headers(twin: Any) -> None:
    batch, header = with_headers(MAX_HEADERS)
    payload = batch[HEADER_SIZE:]
    (record,) = twin.Decoder(payload, header, "t", 0, 0).take(1)
    assert len(record.headers) == MAX_HEADERS
    batch, header = with_headers(MAX_HEADERS + 1)
    payload = batch[HEADER_SIZE:]
    with pytest.raises(OversizedBatch, match="10001 headers, more than 10000"):
        twin.Decoder(payload, header, "t", 0, 0).take(1)
    with pytest.raises(OversizedBatch, match="10001 headers"):
        twin.ColumnsBuffers().extend(payload, header, 0)


def test_every_reader_refuses_too_many_headers() -> None:
    batch, header = with_headers(MAX_HEADERS + 1)
    payload = batch[HEADER_SIZE:]
    with pytest.raises(OversizedBatch):
        list(iter_records(batch))
    with pytest.raises(OversizedBatch):
        RecordColumns().append(batch, header)
    for find in (keyless, portable_keyless):
        with pytest.raises(OversizedBatch):
            find(payload, header, 10)
    for kind in (OffsetMap, PortableOffsetMap):
        with pytest.raises(OversizedBatch):
            kind(4096, 10, 0.9).take(payload, header, 0)


LOOKS = [portable_may_have_header]
if codec.CODEC == "compiled":  # else it only searches for the name
    LOOKS.append(may_have_header)


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_leaves_too_many_headers_to_the_decoder(
    look: Callable[[bytes, int, bytes], bool],
) -> None:
    for count, is_found in ((MAX_HEADERS, False), (MAX_HEADERS + 1, True)):
        batch, _ = with_headers(count)
        assert look(batch[HEADER_SIZE:], 1, b"qbus-") == is_found
