"""Producer snapshots: Kafka's format to the byte, and damage that is seen."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.log import OsFiles
from qbus.broker.log.producers import ProducerState, RetainedBatch
from qbus.broker.log.snapshots import (
    BadSnapshot,
    SnapshotFiles,
    decode_snapshot,
    encode_snapshot,
)
from qbus.records import crc32c


def state(*entries: tuple[int, int, RetainedBatch], end_offset: int = 0) -> ProducerState:
    made = ProducerState(100, end_offset)
    for entry in entries:
        made.add(*entry, 0)
    return made


ONE = (1, 2, RetainedBatch(3, 4, 1, 5))


def test_the_format_is_kafkas_version_1() -> None:
    body = bytes.fromhex(
        "00000001"  # count
        "0000000000000001"  # producer id
        "0002"  # epoch
        "00000003"  # last sequence
        "0000000000000004"  # last offset
        "00000001"  # offset delta
        "0000000000000005"  # timestamp
        "ffffffff"  # coordinator epoch
        "ffffffffffffffff"  # no transaction
    )
    header = bytes.fromhex("0001") + crc32c(body).to_bytes(4, "big")
    assert encode_snapshot(state(ONE)) == header + body


_BATCHES = st.builds(
    RetainedBatch,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**62),
    st.integers(0, 1000),
    st.integers(-1, 2**60),
)


@given(st.lists(st.tuples(st.integers(0, 5), st.just(3), _BATCHES), max_size=30))
def test_the_last_five_batches_of_each_producer_come_back(
    entries: list[tuple[int, int, RetainedBatch]],
) -> None:
    before = state(*entries)
    after = ProducerState(100)
    for entry in decode_snapshot(encode_snapshot(before)):
        after.restore(entry, 0)
    assert [(p.producer_id, p.epoch, p.batches) for p in after] == [
        (p.producer_id, p.epoch, p.batches) for p in before
    ]


def test_every_flipped_bit_is_seen() -> None:
    content = encode_snapshot(state(ONE))
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadSnapshot):
            decode_snapshot(bytes(damaged))


def test_a_cut_snapshot_is_seen() -> None:
    content = encode_snapshot(state(ONE))
    for length in range(len(content)):
        with pytest.raises(BadSnapshot):
            decode_snapshot(content[:length])


def test_a_count_that_lies_is_seen_though_the_sum_is_right() -> None:
    body = (2**31 - 1).to_bytes(4, "big") + bytes(46)
    with pytest.raises(BadSnapshot, match="do not fit"):
        decode_snapshot(b"\0\1" + crc32c(body).to_bytes(4, "big") + body)


@pytest.fixture
def snapshots(directory: Path) -> SnapshotFiles:
    return SnapshotFiles(OsFiles(), str(directory))


def write(snapshots: SnapshotFiles, *offsets: int) -> None:
    for offset in offsets:
        entry = (offset, 0, RetainedBatch(0, offset - 1, 0, 0))
        snapshots.write(offset, encode_snapshot(state(entry)), sync=False)


Load = Callable[[int], ProducerState]


@pytest.fixture
def load(snapshots: SnapshotFiles) -> Load:
    return lambda end: snapshots.load(end, limit=10, start_offset=3, now_ms=0)


def test_the_newest_snapshot_is_loaded(snapshots: SnapshotFiles, load: Load) -> None:
    write(snapshots, 10, 20)
    loaded = load(25)
    assert loaded.end_offset == 20
    assert [producer.producer_id for producer in loaded] == [20]
    assert snapshots.newest() == 20


def test_snapshots_of_records_that_are_gone_are_removed(
    snapshots: SnapshotFiles, load: Load
) -> None:
    write(snapshots, 10, 20, 30)
    assert load(20).end_offset == 20
    assert load(19).end_offset == 10
    assert snapshots.offsets() == [10]


def test_a_damaged_snapshot_gives_way_to_the_one_before(
    snapshots: SnapshotFiles, load: Load, directory: Path
) -> None:
    write(snapshots, 10, 20)
    (directory / f"{20:020d}.snapshot").write_bytes(b"damaged")
    assert load(25).end_offset == 10
    assert snapshots.offsets() == [10]


def test_without_a_snapshot_nothing_is_known(load: Load) -> None:
    loaded = load(25)
    assert (loaded.end_offset, len(loaded)) == (3, 0)


def test_unwanted_snapshots_are_removed(snapshots: SnapshotFiles) -> None:
    write(snapshots, 10, 20, 30)
    snapshots.remove(lambda offset: offset < 25)
    assert snapshots.offsets() == [30]
