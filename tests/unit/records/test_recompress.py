"""A batch in another compression holds the same records, and nothing else of it changes."""

import pytest

from qbus.records import (
    Compression,
    CorruptBatch,
    build_batch,
    check_crc,
    iter_records,
    read_header,
)
from qbus.records.recompress import recompress

ITEMS = [(b"key", b"value" * 50, [("h", b"1")], 1_000), (None, None, (), 2_000)]


def made(compression: Compression) -> bytes:
    return bytes(
        build_batch(
            ITEMS, compression=compression, producer_id=5, producer_epoch=1, base_sequence=3
        )
    )


@pytest.mark.parametrize("before", Compression)
@pytest.mark.parametrize("after", Compression)
def test_from_each_codec_to_each(before: Compression, after: Compression) -> None:
    batch = made(before)
    found = recompress(batch, after, max_size=10_000)
    header = read_header(found)
    check_crc(found, header)
    assert header.compression is after
    assert (header.size, header.base_sequence, header.producer_id) == (len(found), 3, 5)
    assert list(iter_records(found)) == list(iter_records(batch))


def test_other_attributes_stay() -> None:
    batch = bytes(build_batch(ITEMS, attributes=0x10))
    assert read_header(recompress(batch, Compression.ZSTD, max_size=10_000)).attributes == 0x14


@pytest.mark.parametrize(
    "damaged",
    [
        made(Compression.NONE)[:-1],
        made(Compression.NONE) + b"x",
        made(Compression.GZIP)[:-1] + b"x",
        b"",
    ],
)
def test_what_is_no_whole_batch_is_refused(damaged: bytes) -> None:
    with pytest.raises(CorruptBatch):
        recompress(damaged, Compression.LZ4, max_size=10_000)


def test_more_than_the_limit_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="larger than 100 bytes"):
        recompress(made(Compression.GZIP), Compression.LZ4, max_size=100)
