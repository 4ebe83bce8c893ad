"""``compression.type``: what is compressed anew, and what is refused as an append would."""

import pytest

from qbus.broker.log import LogConfig
from qbus.broker.log.recompression import must_recompress, recompressed
from qbus.errors import ApiError, ErrorCode
from qbus.records import Compression, iter_records, read_header
from tests.support.logs import batch

ZSTD = LogConfig(compression_type="zstd")
MAGIC_AT = 16
CONTROL, TRANSACTIONAL = 0x20, 0x10


def test_a_batch_of_another_codec_is_compressed_anew() -> None:
    sent = batch(b"value" * 100, compression=Compression.GZIP)
    assert must_recompress(sent, ZSTD)
    stored = recompressed(sent, ZSTD)
    assert read_header(stored).compression is Compression.ZSTD
    assert [record.value for record in iter_records(stored)] == [b"value" * 100]
    assert not must_recompress(stored, ZSTD)


@pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.name)
def test_producer_leaves_all_as_they_are(codec: Compression) -> None:
    assert not must_recompress(batch(b"value", compression=codec), LogConfig())


@pytest.mark.parametrize("compression_type", ["producer", "gzip"])
def test_a_topic_that_wants_it_as_it_is_by_now_gets_it(compression_type: str) -> None:
    sent = batch(b"value", compression=Compression.GZIP)
    assert recompressed(sent, LogConfig(compression_type=compression_type)) == sent


def old(sent: bytearray) -> bytearray:
    sent[MAGIC_AT] = 1
    return sent


def torn(sent: bytearray) -> bytearray:
    sent[-1] ^= 1
    return sent


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (old(bytearray(batch(b"value"))), ErrorCode.INVALID_RECORD),
        (bytearray(batch(b"one")) + batch(b"two"), ErrorCode.INVALID_RECORD),
        (bytearray(batch(b"value"))[:-1], ErrorCode.CORRUPT_MESSAGE),
        (torn(bytearray(batch(b"value"))), ErrorCode.CORRUPT_MESSAGE),
        (batch(b"value", attributes=CONTROL), ErrorCode.INVALID_RECORD),
        (batch(b"value", attributes=TRANSACTIONAL), ErrorCode.INVALID_RECORD),
        (batch(b"value" * 1000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["old", "two", "cut", "torn", "control", "transactional", "large"],
)
def test_is_refused_with_what_an_append_would_say(
    sent: bytearray | memoryview, code: ErrorCode
) -> None:
    config = LogConfig(compression_type="zstd", max_message_bytes=1000)
    with pytest.raises(ApiError) as refused:
        recompressed(sent, config)
    assert refused.value.code is code


def test_a_mirror_takes_nothing_from_producers() -> None:
    config = LogConfig(compression_type="zstd", qbus_mirror_source="a")
    with pytest.raises(ApiError) as refused:
        recompressed(batch(b"value"), config)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
