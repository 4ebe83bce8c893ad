"""Transactions in a compacted log: aborted records go, and markers after what they end."""

import errno
from pathlib import Path

import pytest

from qbus.broker.compaction.cleaning import Buffers
from qbus.broker.log import Log, OsFiles
from qbus.errors import ApiError
from qbus.records import build_batch, iter_batches
from qbus.records.compact import HORIZON
from qbus.records.control import Marker
from tests.support.failing_files import FailingFiles, failing, healthy

from .keyed import NOW, KeyedLog

TRANSACTIONAL = 0x10
SECOND = 1000


class TransactionalLog(KeyedLog):
    """Transactions of several producers, by the markers of a coordinator."""

    def __init__(self, directory: Path, files: OsFiles | None = None) -> None:
        super().__init__(directory, files, delete_retention_ms=SECOND)
        self.sequences: dict[int, int] = {}

    def send(self, producer: int, key: bytes, value: bytes | None) -> int:
        """One record in the producer's transaction; its offset."""
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        batch = build_batch(
            [(key, value, (), NOW)],
            attributes=TRANSACTIONAL,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        verification = self.log.begin_verification(producer, 0, sequence, begins_with_zero=False)
        return self.log.append(batch, 0, verification).first_offset

    def end(self, producer: int, *, commit: bool) -> int:
        """End the producer's transaction; its marker's offset."""
        marker = Marker(commit, 0)
        return self.log.end_transaction(producer, 0, marker, 0, is_new_epoch=False).first_offset

    def markers(self) -> list[int]:
        return [header.base_offset for header, _ in self.batches() if header.is_marker]


@pytest.fixture
def keyed(tmp_path: Path) -> TransactionalLog:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    return TransactionalLog(directory)


def aborted(log: Log) -> list[tuple[int, int, int]]:
    return [entry[:3] for entry in log.aborted_between(0, log.log_end_offset)]


def test_records_of_an_aborted_transaction_go_and_never_shadow_others(
    keyed: TransactionalLog,
) -> None:
    keyed.put((b"a", b"committed"))
    keyed.send(7, b"a", b"aborted")
    keyed.send(7, b"b", b"aborted")
    keyed.end(7, commit=False)
    keyed.roll()
    keyed.clean()
    assert keyed.items() == [(0, b"a", b"committed")]
    keyed.check()


def test_committed_records_count_as_any_other(keyed: TransactionalLog) -> None:
    keyed.put((b"a", b"old"))
    keyed.send(7, b"a", b"new")
    keyed.end(7, commit=True)
    keyed.roll()
    keyed.clean()
    assert keyed.items() == [(1, b"a", b"new")]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_leaves_after_its_data(keyed: TransactionalLog, commit: bool) -> None:
    keyed.send(7, b"a", b"1")
    marker = keyed.end(7, commit=commit)
    keyed.send(7, b"x", b"1")  # so that the first transaction's batch is not its newest
    keyed.end(7, commit=True)
    keyed.put((b"a", b"2"))
    keyed.roll()
    keyed.clean(now_ms=NOW)
    assert keyed.items()[-1] == (4, b"a", b"2")
    assert marker in keyed.markers(), "the data were there when this compaction began"
    for now_ms, stays in ((NOW, True), (NOW + SECOND - 1, True), (NOW + SECOND, False)):
        keyed.put((b"z", b"%d" % now_ms))
        keyed.roll()
        keyed.clean(now_ms=now_ms)
        assert (marker in keyed.markers()) is stays
        keyed.check()
    keyed.reopen()
    keyed.check()


def test_the_first_compaction_without_data_gives_the_marker_its_horizon(
    keyed: TransactionalLog,
) -> None:
    keyed.send(7, b"a", b"1")
    keyed.end(7, commit=False)
    keyed.send(7, b"x", b"1")
    keyed.end(7, commit=True)
    keyed.roll()
    keyed.clean(now_ms=NOW)
    (first, _) = [header for header, _ in keyed.batches() if header.is_marker]
    assert not first.attributes & HORIZON
    keyed.clean(now_ms=NOW + 5)
    (first, _) = [header for header, _ in keyed.batches() if header.is_marker]
    assert (first.attributes & HORIZON, first.base_timestamp) == (HORIZON, NOW + 5 + SECOND)


def test_readers_are_told_of_an_aborted_transaction_as_long_as_its_batches_are_there(
    keyed: TransactionalLog,
) -> None:
    keyed.send(7, b"a", b"1")
    keyed.end(7, commit=False)
    keyed.roll()
    keyed.clean()  # leaves the batch, emptied, for it is the producer's newest
    assert aborted(keyed.log) == [(7, 0, 1)]
    for clean in (False, True):
        keyed.reopen(clean=clean)
        assert aborted(keyed.log) == [(7, 0, 1)]
    keyed.send(7, b"x", b"1")
    keyed.end(7, commit=True)
    keyed.roll()
    keyed.clean()
    keyed.clean()
    assert aborted(keyed.log) == []
    for clean in (False, True):
        keyed.reopen(clean=clean)
        assert aborted(keyed.log) == []
    keyed.check()


def test_an_emptied_batch_opens_no_transaction(keyed: TransactionalLog) -> None:
    keyed.send(7, b"a", b"1")
    keyed.end(7, commit=True)
    keyed.put((b"a", b"2"))
    keyed.roll()
    for now_ms in (NOW, NOW + SECOND, NOW + 5 * SECOND):
        keyed.clean(now_ms=now_ms)
        keyed.log.drop_snapshots()
        keyed.reopen()
        end = keyed.log.log_end_offset
        assert keyed.log.first_unstable(end) == end


def test_interleaved_transactions_are_told_apart(keyed: TransactionalLog) -> None:
    keyed.send(7, b"a", b"aborted")
    keyed.send(8, b"a", b"committed")
    keyed.send(7, b"b", b"aborted")
    keyed.send(8, b"c", b"committed")
    keyed.end(7, commit=False)
    keyed.end(8, commit=True)
    keyed.roll()
    keyed.clean()
    assert [item[0] for item in keyed.items()] == [1, 3]
    assert aborted(keyed.log) == [(7, 0, 4)]


def test_a_transaction_may_end_in_a_later_segment(keyed: TransactionalLog) -> None:
    keyed.put((b"a", b"1"))
    keyed.send(7, b"a", b"aborted")
    keyed.roll()
    keyed.put((b"b", b"1"))
    keyed.end(7, commit=False)
    keyed.roll()
    keyed.clean(limit=2)
    assert [item[0] for item in keyed.items()] == [0, 2]
    keyed.clean()
    assert [item[0] for item in keyed.items()] == [0, 2]
    keyed.check()


def test_every_offset_is_still_covered(keyed: TransactionalLog) -> None:
    for number in range(30):
        keyed.send(7, b"%d" % (number % 3), b"v" * 200)
        if number % 3 == 2:
            keyed.end(7, commit=number % 2 == 0)
    keyed.roll()
    for now_ms in (NOW, NOW + SECOND, NOW + 9 * SECOND, NOW + 99 * SECOND):
        keyed.clean(now_ms=now_ms)
        keyed.check()
    data = b"".join(bytes(batch) for _, batch in keyed.batches())
    assert sum(1 for _ in iter_batches(data)) < 12


def test_a_producer_whose_epoch_a_marker_began_has_no_batch_to_keep(
    keyed: TransactionalLog,
) -> None:
    keyed.send(7, b"a", b"1")
    keyed.log.end_transaction(7, 1, Marker(True, 0), 0, is_new_epoch=True)
    keyed.put((b"a", b"2"))
    keyed.roll()
    keyed.clean()
    assert keyed.items() == [(2, b"a", b"2")]
    keyed.check()


def test_a_marker_that_began_its_producers_epoch_stays_as_long_as_the_producer_has_no_batch(
    keyed: TransactionalLog,
) -> None:
    keyed.send(7, b"a", b"1")
    keyed.log.end_transaction(7, 1, Marker(True, 0), 0, is_new_epoch=True)
    for now_ms in (NOW, NOW + SECOND, NOW + 9 * SECOND):
        keyed.put((b"a", b"%d" % now_ms))
        keyed.roll()
        keyed.clean(now_ms=now_ms)
        assert keyed.markers() == [1]
    keyed.check()


def test_what_the_memory_does_not_suffice_for_stays_aborted(keyed: TransactionalLog) -> None:
    keyed.put(*((b"%d" % number, b"1") for number in range(100)))
    keyed.send(7, b"0", b"aborted")
    keyed.end(7, commit=False)
    keyed.roll()
    result = keyed.clean(buffers=Buffers(24 * 20, 0.9, 4096))
    assert result.end_offset < 100, "the segment is rewritten, though only a part was learned"
    assert aborted(keyed.log) == [(7, 100, 101)]
    keyed.clean()
    assert keyed.items() == [(number, b"%d" % number, b"1") for number in range(100)]
    keyed.check()


def test_a_disk_that_fails_amid_the_swap_costs_no_aborted_transaction(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    files = FailingFiles()
    keyed = TransactionalLog(directory, files)
    keyed.put((b"x", b"1"))
    keyed.roll()
    keyed.put(*((b"%d" % number, b"1") for number in range(100)))
    keyed.send(7, b"0", b"aborted")
    keyed.end(7, commit=False)
    keyed.roll()
    point = keyed.log.checkpoint()
    files.before = failing(errno.EIO, "rename", path=".index.cleaned")
    with pytest.raises(ApiError, match="offline"):
        keyed.clean(buffers=Buffers(24 * 20, 0.9, 4096))
    files.before = healthy
    keyed.log = Log.open(
        str(directory), keyed.config, keyed.clock, files, recovery_point=point, clean=False
    )
    assert keyed.log.segment_count == 2
    assert aborted(keyed.log) == [(7, 101, 102)]
    keyed.check()
