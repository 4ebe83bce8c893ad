"""Appending as a follower: the leader's batches as they are, or nothing."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.log import EpochStart, Log, LogConfig
from qbus.broker.log.following import walk
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.records import CorruptBatch, read_header, set_base_offset
from qbus.records.header import write_header
from tests.support.logs import NOW_MS, ControlledFiles, DiskControl, batch

from .conftest import OpenLog

CONTROL = 0x20
TRANSACTIONAL = 0x10


def placed(
    offset: int, *values: bytes, epoch: int = 0, timestamp: int = NOW_MS, **rest: Any
) -> memoryview:
    """A batch as a leader has it."""
    made = batch(*(values or (b"v",)), timestamp=timestamp, **rest)
    set_base_offset(made, offset, epoch)
    return made


def joined(*batches: memoryview) -> memoryview:
    return memoryview(b"".join(batches))


def content(log: Log) -> bytes:
    """Every byte of every batch."""
    found, offset = b"", log.log_start_offset
    while (part := log.read(offset, 1 << 20, wait=True)) is not None:
        with part:
            found += part.read()
            offset = part.next_offset
    return found


def test_batches_are_kept_byte_for_byte(open_log: OpenLog) -> None:
    log = open_log()
    sent = joined(placed(0, b"a", b"b", epoch=3, timestamp=5), placed(2, b"c", epoch=7))
    info = log.append_as_follower(sent)
    assert (info.first_offset, info.last_offset, info.duplicate) == (0, 2, False)
    assert log.log_end_offset == 3
    assert content(log) == bytes(sent)
    assert log.epoch_cache.entries == (EpochStart(3, 0), EpochStart(7, 2))


def test_a_log_that_has_nothing_begins_with_the_batch_that_the_leaders_starts_within(
    open_log: OpenLog,
) -> None:
    log = open_log()
    log.restart_at(7)
    sent = joined(placed(6, b"a", b"b", b"c", epoch=3), placed(9, epoch=3))
    for bad in sent[: len(sent) // 3], memoryview(bytes(sent[:-1]) + b"!")[: len(placed(9))]:
        with pytest.raises(CorruptBatch):
            log.append_as_follower(bad)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    log.append_as_follower(sent)
    log.flush()
    for opened in log, open_log(log_start_offset=7), open_log(recovery_point=10, clean=True):
        opened.delete_records_before(7)
        assert (opened.log_start_offset, opened.log_end_offset) == (7, 10)
        assert content(opened) == bytes(sent)
    with pytest.raises(CorruptBatch, match="begins with offset 6, not 10"):
        log.append_as_follower(sent)


def test_nothing_of_the_topics_settings_concerns_a_follower(open_log: OpenLog) -> None:
    log = open_log(max_message_bytes=10, message_timestamp_type="LogAppendTime", segment_bytes=50)
    old = placed(0, b"v" * 100, timestamp=1, attributes=TRANSACTIONAL, producer_id=4)
    assert log.append_as_follower(old).log_append_time == -1
    assert content(log) == bytes(old)


def test_a_log_of_two_segments_is_as_one_would_read_it(open_log: OpenLog) -> None:
    one = placed(0, b"v" * 100)
    log = open_log(segment_bytes=2 * len(one))
    sent = joined(*(placed(offset, b"v" * 100) for offset in range(5)))
    log.append_as_follower(sent)
    assert log.segment_count == 3
    assert content(log) == bytes(sent)


def test_the_first_batch_begins_where_the_log_ends(open_log: OpenLog) -> None:
    log = open_log()
    log.append_as_follower(placed(0))
    for offset in (0, 2):
        with pytest.raises(CorruptBatch, match=f"begins with offset {offset}, not 1"):
            log.append_as_follower(placed(offset))
    assert log.log_end_offset == 1


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (placed(5), "begins with offset 5, not 2"),
        (placed(2, epoch=1), "leader epoch 1 after 2"),
        (memoryview(bytes(placed(2, epoch=2))[:-1] + b"!"), "CRC"),
        (memoryview(bytes(100)), "magic"),
    ],
)
def test_nothing_is_appended_from_a_wrong_batch_on(
    open_log: OpenLog, wrong: memoryview, problem: str
) -> None:
    log = open_log()
    good = placed(0, b"a", b"b", epoch=2)
    with pytest.raises(CorruptBatch, match=problem):
        log.append_as_follower(joined(good, wrong, placed(3, epoch=2)))
    assert log.log_end_offset == 2
    assert content(log) == bytes(good)


def test_a_batch_whose_counts_disagree_is_refused(open_log: OpenLog) -> None:
    lying = bytearray(placed(0, b"a", b"b"))
    write_header(lying, read_header(lying)._replace(records_count=9))
    with pytest.raises(CorruptBatch, match="9 records do not fit"):
        open_log().append_as_follower(memoryview(lying))


def test_what_is_cut_behind_a_whole_batch_comes_again(open_log: OpenLog) -> None:
    log = open_log()
    whole, cut = placed(0), placed(1, b"v" * 50)
    for size in (1, 60, 61, len(cut) - 1):
        log.truncate_to(0)
        assert log.append_as_follower(joined(whole, cut[:size])).last_offset == 0
        with pytest.raises(CorruptBatch):
            log.append_as_follower(cut[:size])
    with pytest.raises(CorruptBatch):
        log.append_as_follower(memoryview(b""))
    log.append_as_follower(cut)
    assert log.log_end_offset == 2


@given(st.binary(min_size=1, max_size=20), st.integers(0, 100))
def test_a_damaged_batch_is_never_taken(damage: bytes, at: int) -> None:
    good = bytes(placed(0, b"a" * 40))
    damaged = good[:at] + damage + good[at + len(damage) :]
    headers, problem = walk(memoryview(damaged), 0, 0, gaps=False)
    taken = sum(header.size for header in headers)
    assert damaged[:taken] in {good, b""} or damaged[12:16] != good[12:16], "epochs have no sum"
    assert headers or problem


def test_producers_are_known_once_it_leads(open_log: OpenLog) -> None:
    log = open_log()
    log.append_as_follower(
        joined(
            placed(0, b"a", b"b", producer_id=9, producer_epoch=1, base_sequence=4),
            placed(2, b"c", producer_id=9, producer_epoch=1, base_sequence=6),
        )
    )
    again = batch(b"c", producer_id=9, producer_epoch=1, base_sequence=6)
    info = log.append(again, 1)
    assert (info.first_offset, info.duplicate) == (2, True)
    with pytest.raises(ApiError):
        log.append(batch(b"x", producer_id=9, producer_epoch=1, base_sequence=9), 1)


def test_the_end_of_a_transaction_leaves_sequences_alone(open_log: OpenLog) -> None:
    log = open_log()
    wrote: dict[str, Any] = {"producer_id": 9, "producer_epoch": 1}
    log.append_as_follower(placed(0, b"a", base_sequence=0, **wrote))
    log.append_as_follower(placed(1, b"m", attributes=CONTROL | TRANSACTIONAL, **wrote))
    assert log.append(batch(b"b", base_sequence=1, **wrote), 0).first_offset == 2


def test_the_end_of_a_transaction_in_a_newer_epoch_ends_what_was_before(open_log: OpenLog) -> None:
    log = open_log()
    log.append_as_follower(placed(0, b"a", producer_id=9, producer_epoch=1, base_sequence=7))
    marker = placed(1, b"m", attributes=CONTROL | TRANSACTIONAL, producer_id=9, producer_epoch=2)
    log.append_as_follower(marker)
    (known,) = log.producers
    assert (known.epoch, known.batches) == (2, ())
    with pytest.raises(ApiError) as refused:
        log.append(batch(b"b", producer_id=9, producer_epoch=1, base_sequence=8), 0)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    log.append(batch(b"b", producer_id=9, producer_epoch=2, base_sequence=0), 0)


def test_a_producer_survives_a_crash_of_the_follower(open_log: OpenLog) -> None:
    log = open_log()
    log.append_as_follower(placed(0, b"a", producer_id=9, producer_epoch=1, base_sequence=0))
    log.flush()
    again = open_log().append(batch(b"a", producer_id=9, producer_epoch=1, base_sequence=0), 0)
    assert again.duplicate


def test_a_full_disk_appends_nothing(directory: Path, clock: ManualClock) -> None:
    disk = DiskControl()
    log = Log.open(str(directory), LogConfig(), clock, ControlledFiles(disk))
    log.append_as_follower(placed(0))
    disk.fill()
    with pytest.raises(ApiError) as caught:
        log.append_as_follower(joined(placed(1), placed(2)))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 1
    disk.empty()
    log.append_as_follower(joined(placed(1), placed(2)))
    assert content(log) == bytes(joined(placed(0), placed(1), placed(2)))


def test_epochs_without_records_make_way_for_the_leaders(open_log: OpenLog) -> None:
    """A leader that wrote nothing may follow one that has more of an older epoch."""
    log = open_log()
    log.append_as_follower(placed(0, epoch=4))
    log.epoch_cache.assign(5, 1)
    log.truncate_to(1)
    log.append_as_follower(placed(1, epoch=4))
    assert log.epoch_cache.entries == (EpochStart(4, 0),)
