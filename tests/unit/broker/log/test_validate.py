"""What may be produced, and the code that Kafka gives for everything else."""

import struct

import pytest

from qbus.broker.log import LogConfig
from qbus.broker.log.appender import check_batch
from qbus.errors import ApiError, ErrorCode
from qbus.records import Compression, crc32c
from tests.support.logs import NOW_MS, batch

_CONTROL, _TRANSACTIONAL, _LOG_APPEND_TIME = 0x20, 0x10, 0x08


def refusal(given: bytes | bytearray | memoryview, **config: object) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        check_batch(bytearray(given), LogConfig(**config), NOW_MS)  # type: ignore[arg-type]
    return caught.value.code


def changed(given: memoryview, at: int, form: str, value: int) -> bytearray:
    """The batch with one field of its header changed, and its sum made right again."""
    made = bytearray(given)
    struct.pack_into(form, made, at, value)
    struct.pack_into(">I", made, 17, crc32c(made[21:]))
    return made


def test_a_good_batch_has_its_header_returned() -> None:
    header = check_batch(batch(b"a", b"b"), LogConfig(), NOW_MS)
    assert (header.records_count, header.last_offset_delta) == (2, 1)


@pytest.mark.parametrize("compression", list(Compression))
def test_every_compression_is_taken(compression: Compression) -> None:
    check_batch(batch(b"a" * 100, compression=compression), LogConfig(), NOW_MS)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_invalid_records(magic: int) -> None:
    made = bytearray(batch(b"a"))
    made[16] = magic
    assert refusal(made) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_unknown_formats_are_corrupt(magic: int) -> None:
    made = bytearray(batch(b"a"))
    made[16] = magic
    assert refusal(made) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [0, 1, 16, 17, 60])
def test_less_than_a_header_is_corrupt(length: int) -> None:
    assert refusal(batch(b"a")[:length]) == ErrorCode.CORRUPT_MESSAGE


def test_a_cut_batch_is_corrupt() -> None:
    assert refusal(batch(b"a" * 100)[:-1]) == ErrorCode.CORRUPT_MESSAGE


def test_two_batches_are_an_invalid_record() -> None:
    assert refusal(bytes(batch(b"a")) * 2) == ErrorCode.INVALID_RECORD
    assert refusal(bytes(batch(b"a")) + b"x") == ErrorCode.INVALID_RECORD


def test_every_flipped_bit_that_a_client_vouches_for_is_seen() -> None:
    good = batch(b"some value", producer_id=1, producer_epoch=0, base_sequence=0)
    broker_sets = {*range(8), *range(12, 16)}  # base offset and leader epoch
    for position in set(range(len(good))) - broker_sets:
        made = bytearray(good)
        made[position] ^= 1 << position % 8
        with pytest.raises(ApiError):
            check_batch(made, LogConfig(), NOW_MS)


def test_a_bad_sum_is_corrupt() -> None:
    made = bytearray(batch(b"a"))
    made[-1] ^= 1
    assert refusal(made) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_an_impossible_length_is_corrupt(length: int) -> None:
    assert refusal(changed(batch(b"a"), 8, ">i", length)) == ErrorCode.CORRUPT_MESSAGE


def test_sizes_are_limited() -> None:
    made = batch(b"a" * 1000)
    assert refusal(made, max_message_bytes=1000) == ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(made, segment_bytes=1000) == ErrorCode.RECORD_LIST_TOO_LARGE
    check_batch(made, LogConfig(max_message_bytes=len(made), segment_bytes=len(made)), NOW_MS)


@pytest.mark.parametrize(("at", "value"), [(57, 0), (57, 3), (57, -1), (23, 0), (23, -1), (23, 9)])
def test_counts_must_agree(at: int, value: int) -> None:
    assert refusal(changed(batch(b"a", b"b"), at, ">i", value)) == ErrorCode.INVALID_RECORD


def test_no_records_are_an_invalid_record() -> None:
    made = changed(batch(b"a"), 57, ">i", 0)
    assert refusal(changed(memoryview(made), 23, ">i", -1)) == ErrorCode.INVALID_RECORD


def test_clients_write_no_control_batches() -> None:
    assert refusal(batch(b"a", attributes=_CONTROL)) == ErrorCode.INVALID_RECORD


def test_a_transaction_is_of_a_producer() -> None:
    assert refusal(batch(b"a", attributes=_TRANSACTIONAL)) == ErrorCode.INVALID_RECORD


def test_an_idempotent_producer_gives_sequence_and_epoch() -> None:
    assert refusal(batch(b"a", producer_id=1, producer_epoch=0)) == ErrorCode.INVALID_RECORD
    assert refusal(batch(b"a", producer_id=1, base_sequence=0)) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    made = changed(batch(b"a"), 21, ">h", codec)
    assert refusal(made) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_producers_do_not_claim_the_brokers_time() -> None:
    claimed = batch(b"a", attributes=_LOG_APPEND_TIME)
    assert refusal(claimed) == ErrorCode.INVALID_TIMESTAMP
    config = LogConfig(message_timestamp_type="LogAppendTime")
    check_batch(claimed, config, NOW_MS)


def test_timestamps_may_be_an_hour_ahead_and_as_old_as_they_like() -> None:
    hour = 60 * 60 * 1000
    check_batch(batch(b"a", timestamp=NOW_MS + hour), LogConfig(), NOW_MS)
    check_batch(batch(b"a", timestamp=0), LogConfig(), NOW_MS)
    assert refusal(batch(b"a", timestamp=NOW_MS + hour + 1)) == ErrorCode.INVALID_TIMESTAMP


def test_timestamps_are_limited_as_configured() -> None:
    limits = {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 10}
    check_batch(batch(b"a", timestamp=NOW_MS - 1000), LogConfig(**limits), NOW_MS)  # type: ignore[arg-type]
    check_batch(batch(b"a", timestamp=-1), LogConfig(**limits), NOW_MS)  # type: ignore[arg-type]
    assert refusal(batch(b"a", timestamp=NOW_MS - 1001), **limits) == ErrorCode.INVALID_TIMESTAMP
    assert refusal(batch(b"a", timestamp=NOW_MS + 11), **limits) == ErrorCode.INVALID_TIMESTAMP


def test_the_brokers_time_needs_no_limits() -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1)
    check_batch(batch(b"a", timestamp=5), config, NOW_MS)
