"""``compression.type`` of a topic: which batches are compressed anew before they are appended.

As in Kafka, a batch whose codec is the topic's stays as its producer made it; any other one is
decompressed, compressed by the topic's codec and level (KIP-390, KIP-780), and its size checked
before and after.
"""

from qbus.errors import ApiError, ErrorCode
from qbus.records import Buffer, Compression, CorruptBatch, check_crc
from qbus.records.bounds import MAX_RECORDS_SIZE, most_bytes
from qbus.records.header import ATTRIBUTES_AT

from .appender import check_fields, read_only_batch
from .config import LogConfig

PRODUCER = "producer"
"""The value of ``compression.type`` that leaves all batches as they are."""

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_CODEC_BITS = 0x07
_GZIP_DEFAULT = -1
_LZ4_DEFAULT = 9  # stands for the fast compressor, as in Kafka, not for level 9 of the slow one


def must_recompress(batch: Buffer, config: LogConfig) -> bool:
    """Whether ``batch`` is compressed otherwise than the topic's ``compression.type`` asks for."""
    if config.compression_type == PRODUCER or len(batch) <= ATTRIBUTES_AT:
        return False
    codec = batch[ATTRIBUTES_AT] & _CODEC_BITS
    return codec in set(Compression) and codec != _CODECS[config.compression_type]


def recompressed(batch: Buffer, config: LogConfig, ceiling: int = MAX_RECORDS_SIZE) -> bytearray:
    """Return the batch as the topic wants it. Takes a while: not for an event loop.

    ``ceiling``: the bytes that its records may take at most, decompressed. Raises
    :class:`~qbus.errors.ApiError`: what an append would refuse the batch with as it is, but for its
    timestamps and ``segment.bytes``; CORRUPT_MESSAGE if it cannot be decompressed,
    MESSAGE_TOO_LARGE if it is too large then.
    """
    from qbus.records.recompress import recompress  # noqa: PLC0415 - most brokers need no codec

    header = read_only_batch(batch, config)
    if len(batch) > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {len(batch)} bytes exceeds max.message.bytes ({config.max_message_bytes})",
        )
    check_crc(batch, header)
    check_fields(header)
    if not must_recompress(batch, config):  # the topic was configured otherwise meanwhile
        return bytearray(batch)
    codec = _CODECS[config.compression_type]
    try:
        most = most_bytes(len(batch), ceiling)
        return recompress(batch, codec, _level(codec, config), max_size=most)
    except CorruptBatch as error:
        raise ApiError(error.code, f"not stored as {codec.name}: {error}") from error


def _level(codec: Compression, config: LogConfig) -> int | None:
    match codec:
        case Compression.GZIP:
            level = config.compression_gzip_level
            return None if level == _GZIP_DEFAULT else level
        case Compression.LZ4:
            level = config.compression_lz4_level
            return None if level == _LZ4_DEFAULT else level
        case Compression.ZSTD:
            return config.compression_zstd_level
        case _:
            return None
