"""What a produced batch must be, before it may be appended: Kafka's checks and error codes.

The records inside are not looked at: their CRC says that they are as the producer sent them, and
decompressing them would cost more than all the rest.
"""

from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader, CorruptBatch, check_crc, read_header

from .config import LogConfig

_NO_TIMESTAMP = -1
_MAGIC_AT = 16
_OLD_MAGICS = (0, 1)
_CODEC_BITS = 0x07
_ZSTD = 4


def check_batch(batch: bytearray | memoryview, config: LogConfig, now_ms: int) -> BatchHeader:
    """The header of ``batch``, which must be exactly one batch that a client may produce.

    Raises ApiError with the code that Kafka gives; POLICY_VIOLATION for any, if the log mirrors.
    """
    if config.qbus_mirror_source:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"the topic is a mirror of the one in {config.qbus_mirror_source}:"
            " only a mirror writes to it",
        )
    header = _read_only_batch(batch)
    _check_size(len(batch), config)
    check_crc(batch, header)
    _check_fields(header)
    if not config.uses_log_append_time:
        _check_timestamps(header, config, now_ms)
    return header


def _read_only_batch(batch: bytearray | memoryview) -> BatchHeader:
    if len(batch) > _MAGIC_AT and batch[_MAGIC_AT] in _OLD_MAGICS:
        raise ApiError(ErrorCode.INVALID_RECORD, "only record batches of magic 2 are taken")
    header = read_header(batch)
    if header.size > len(batch):
        raise CorruptBatch(f"batch of {header.size} bytes is cut at {len(batch)}")
    if header.size < len(batch):
        raise ApiError(ErrorCode.INVALID_RECORD, "more than one batch for a partition")
    return header


def _check_size(size: int, config: LogConfig) -> None:
    if size > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {size} bytes exceeds max.message.bytes ({config.max_message_bytes})",
        )
    if size > config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"batch of {size} bytes exceeds segment.bytes ({config.segment_bytes})",
        )


def _check_fields(header: BatchHeader) -> None:
    if header.last_offset_delta < 0 or header.records_count != header.last_offset_delta + 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{header.records_count} records do not fit"
            f" last offset delta {header.last_offset_delta}",
        )
    if header.is_control:
        raise ApiError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.is_transactional:
        raise ApiError(ErrorCode.INVALID_TXN_STATE, "no transaction is open")
    if header.has_producer_id and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} gives sequence {header.base_sequence}"
            f" and epoch {header.producer_epoch}",
        )
    if header.attributes & _CODEC_BITS > _ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "unknown compression codec")


def _check_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if header.is_log_append_time:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "producers may not claim LogAppendTime")
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    if header.max_timestamp > latest or header.base_timestamp > latest:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.max_timestamp} is too far ahead of the broker's, {now_ms}",
        )
    if _NO_TIMESTAMP < header.base_timestamp < earliest:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.base_timestamp} is too old for the broker's, {now_ms}",
        )
