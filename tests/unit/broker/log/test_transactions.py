"""Transactions in a log: what is open or aborted, which markers count, what a restart knows."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.broker.log import AbortedTransaction, Log, LogConfig, OsFiles
from qbus.broker.log.transactions import encode_aborted, read_aborted
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.records import read_header
from qbus.records.control import Marker, read_marker
from tests.support.logs import batch, transactional

from .conftest import OpenLog

COMMIT, ABORT = Marker(True, 0), Marker(False, 0)


def send(log: Log, producer_id: int = 7, epoch: int = 0, sequence: int = 0, count: int = 1) -> int:
    """Append a batch of a transaction; its first offset."""
    asked = log.begin_verification(producer_id, epoch, sequence, begins_with_zero=False)
    made = transactional(*[b"v"] * count, producer_id=producer_id, epoch=epoch, sequence=sequence)
    return log.append(made, 0, asked).first_offset


def end(
    log: Log, marker: Marker, producer_id: int = 7, epoch: int = 0, *, is_new_epoch: bool = False
) -> int:
    """Append a marker; its offset."""
    return log.end_transaction(producer_id, epoch, marker, 0, is_new_epoch=is_new_epoch).last_offset


def stable(log: Log, high_watermark: int | None = None) -> int:
    """The last stable offset, of a log that is acknowledged up to its end or to an offset."""
    high_watermark = log.log_end_offset if high_watermark is None else high_watermark
    log.advance_stable(high_watermark)
    return log.first_unstable(high_watermark)


def aborted(log: Log) -> list[AbortedTransaction]:
    return log.aborted_between(0, log.log_end_offset)


def refusal(log: Log, *args: object, **options: object) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        log.append(*args, **options)  # type: ignore[arg-type]
    return caught.value.code


class TestAppending:
    def test_a_transaction_begins_with_its_first_batch(self, open_log: OpenLog) -> None:
        log = open_log()
        log.append(batch(b"before"), 0)
        assert send(log) == 1
        assert log.has_transactions
        assert log.producers.open_transactions == {7: 1}
        assert send(log, sequence=1) == 2
        assert stable(log) == 1

    def test_a_marker_takes_one_offset_and_is_kafkas(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log, count=3)
        assert end(log, Marker(True, 5)) == 3
        assert log.log_end_offset == 4
        found = log.read(3, 1 << 20)
        assert found is not None
        data = found.read()
        header = read_header(data)
        assert (header.attributes, header.base_sequence, header.records_count) == (0x30, -1, 1)
        assert (header.producer_id, header.producer_epoch) == (7, 0)
        # Key: version 0, type 1; value: version 0, coordinator epoch 5; no headers
        assert (
            data[61:].hex()
            == bytes([2 * 16, 0, 0, 0, 2 * 4, 0, 0, 0, 1, 2 * 6, 0, 0, 0, 0, 0, 5, 0]).hex()
        )
        assert read_marker(data) == Marker(True, 5)

    def test_the_first_batch_needs_that_its_coordinator_was_asked(self, open_log: OpenLog) -> None:
        log = open_log()
        assert refusal(log, transactional(b"v"), 0) is ErrorCode.INVALID_TXN_STATE
        assert log.log_end_offset == 0
        assert stable(log) == 0

    def test_what_was_asked_before_the_marker_is_void_after_it(self, open_log: OpenLog) -> None:
        log = open_log()
        asked = log.begin_verification(7, 0, 0, begins_with_zero=False)
        end(log, ABORT)
        late = transactional(b"late")
        assert refusal(log, late, 0, asked) is ErrorCode.INVALID_TXN_STATE
        assert stable(log) == log.log_end_offset == 1

    def test_the_marker_before_a_new_epoch_leaves_what_was_asked_for_that(
        self, open_log: OpenLog
    ) -> None:
        log = open_log()
        send(log)
        asked = log.begin_verification(7, 1, 0, begins_with_zero=True)
        end(log, COMMIT, epoch=1, is_new_epoch=True)
        assert log.append(transactional(b"next", epoch=1), 0, asked).first_offset == 2
        asked = log.begin_verification(8, 1, 0, begins_with_zero=True)
        end(log, ABORT, 8, epoch=2, is_new_epoch=True)
        late = transactional(b"late", producer_id=8, epoch=1)
        assert refusal(log, late, 0, asked) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_a_batch_after_its_marker_is_refused(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log)
        end(log, COMMIT)
        late = transactional(b"late", sequence=1)
        assert refusal(log, late, 0) is ErrorCode.INVALID_TXN_STATE

    def test_a_batch_of_the_epoch_before_the_marker_is_fenced(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log)
        end(log, ABORT, epoch=1, is_new_epoch=True)
        asked = log.begin_verification(7, 0, 1, begins_with_zero=True)
        late = transactional(b"late", sequence=1)
        assert refusal(log, late, 0, asked) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_batches_that_wait_together_keep_their_order(self, open_log: OpenLog) -> None:
        log = open_log()
        first = log.begin_verification(7, 0, 0, begins_with_zero=False)
        second = log.begin_verification(7, 0, 1, begins_with_zero=False)
        assert first is second
        overtaking = transactional(b"second", sequence=1)
        assert refusal(log, overtaking, 0, second) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        log.append(transactional(b"first"), 0, first)
        log.append(transactional(b"second", sequence=1), 0, second)
        assert log.log_end_offset == 2

    def test_with_new_epochs_a_transaction_begins_with_sequence_0(self, open_log: OpenLog) -> None:
        log = open_log()
        asked = log.begin_verification(7, 0, 3, begins_with_zero=True)
        lost = transactional(b"v", sequence=3)
        assert refusal(log, lost, 0, asked) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_nothing_is_asked_while_the_transaction_is_open(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log)
        assert log.begin_verification(7, 0, 1, begins_with_zero=False) is None
        assert log.begin_verification(7, 1, 0, begins_with_zero=False) is not None
        assert log.begin_verification(8, 0, 0, begins_with_zero=False) is not None

    def test_a_producer_in_a_transaction_writes_nothing_else(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log)
        plain = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=1)
        assert refusal(log, plain, 0) is ErrorCode.INVALID_TXN_STATE
        plain = batch(b"v", producer_id=7, producer_epoch=1, base_sequence=0)
        assert refusal(log, plain, 0) is ErrorCode.INVALID_TXN_STATE

    def test_a_batch_sent_again_has_the_offset_it_had(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log)
        info = log.append(transactional(b"v"), 0)
        assert (info.duplicate, info.first_offset) == (True, 0)

    def test_a_transactional_batch_needs_a_producer(self, open_log: OpenLog) -> None:
        assert refusal(open_log(), batch(b"v", attributes=0x10), 0) is ErrorCode.INVALID_RECORD

    def test_clients_may_not_write_markers(self, open_log: OpenLog) -> None:
        log = open_log()
        forged = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0, attributes=0x30)
        assert refusal(log, forged, 0) is ErrorCode.INVALID_RECORD


class TestMarkers:
    @pytest.mark.parametrize(
        ("epoch", "is_new_epoch", "code"),
        [
            (2, False, ErrorCode.INVALID_PRODUCER_EPOCH),
            (3, False, None),
            (4, False, None),
            (2, True, ErrorCode.INVALID_PRODUCER_EPOCH),
            (3, True, ErrorCode.INVALID_PRODUCER_EPOCH),
            (4, True, None),
        ],
    )
    def test_a_marker_of_an_old_epoch_ends_nothing(
        self, open_log: OpenLog, epoch: int, is_new_epoch: bool, code: ErrorCode | None
    ) -> None:
        log = open_log()
        send(log, epoch=3)
        if code is None:
            end(log, ABORT, epoch=epoch, is_new_epoch=is_new_epoch)
            assert log.producers.open_transactions == {}
            return
        with pytest.raises(ApiError) as refused:
            end(log, ABORT, epoch=epoch, is_new_epoch=is_new_epoch)
        assert refused.value.code is code
        assert log.producers.open_transactions == {7: 0}

    def test_a_late_marker_never_ends_the_next_transaction(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log, epoch=0)
        end(log, COMMIT, epoch=1, is_new_epoch=True)
        send(log, epoch=1)
        with pytest.raises(ApiError) as refused:
            end(log, COMMIT, epoch=1, is_new_epoch=True)
        assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert log.producers.open_transactions == {7: 2}

    def test_a_marker_with_a_new_epoch_is_written_once(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log, epoch=0)
        end(log, COMMIT, epoch=1, is_new_epoch=True)
        again = log.end_transaction(7, 1, COMMIT, 0, is_new_epoch=True)
        assert again.duplicate
        assert again.last_offset == 1
        assert log.log_end_offset == 2

    def test_an_older_coordinator_is_fenced(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log)
        end(log, Marker(True, 5))
        send(log, sequence=1)
        with pytest.raises(ApiError) as refused:
            end(log, Marker(False, 4))
        assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        end(log, Marker(False, 5))

    def test_a_marker_without_a_transaction_is_written(self, open_log: OpenLog) -> None:
        log = open_log()
        assert end(log, ABORT) == 0
        assert aborted(log) == []
        assert stable(log) == 1

    def test_an_abort_leaves_other_producers_alone(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log, 7)
        send(log, 8)
        end(log, ABORT, 7)
        assert log.producers.open_transactions == {8: 1}
        assert [entry.producer_id for entry in aborted(log)] == [7]


class TestTheLastStableOffset:
    def test_is_the_high_watermark_without_transactions(self, open_log: OpenLog) -> None:
        log = open_log()
        log.append(batch(b"a", b"b"), 0)
        assert stable(log, 1) == 1
        assert stable(log) == 2

    def test_stands_before_the_first_open_transaction(self, open_log: OpenLog) -> None:
        log = open_log()
        log.append(batch(b"plain"), 0)
        send(log, 1)
        send(log, 2)
        assert stable(log) == 1
        end(log, COMMIT, 1)
        assert stable(log) == 2
        end(log, ABORT, 2)
        assert stable(log) == 5

    def test_stands_before_a_transaction_whose_marker_is_not_acknowledged(
        self, open_log: OpenLog
    ) -> None:
        log = open_log()
        send(log)
        marker = end(log, COMMIT)
        assert stable(log, marker) == 0
        assert stable(log, marker + 1) == marker + 1

    def test_markers_count_one_by_one(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log, 1)  # 0
        send(log, 2)  # 1
        end(log, COMMIT, 2)  # 2
        end(log, COMMIT, 1)  # 3
        assert stable(log, 2) == 0
        assert stable(log, 3) == 0  # the first one's marker is not acknowledged
        assert stable(log, 4) == 4

    @settings(max_examples=200, deadline=None)
    @given(data=st.data())
    def test_never_goes_back_and_never_passes_what_is_open(
        self, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        directory = tmp_path_factory.mktemp("log") / "topic-0"
        directory.mkdir()
        log = Log.open(str(directory), LogConfig(), ManualClock(), OsFiles())
        opened: dict[int, int] = {}
        undecided: dict[int, int] = {}  # first offsets by the marker's offset
        sequences: dict[int, int] = {}
        high_watermark = before = 0
        for _ in range(data.draw(st.integers(1, 30))):
            producer_id = data.draw(st.integers(1, 4))
            match data.draw(st.sampled_from(("send", "commit", "abort", "advance"))):
                case "send":
                    sequence = sequences.get(producer_id, 0)
                    offset = send(log, producer_id, sequence=sequence)
                    sequences[producer_id] = sequence + 1
                    opened.setdefault(producer_id, offset)
                case "advance":
                    end_offset = log.log_end_offset
                    high_watermark = data.draw(st.integers(high_watermark, end_offset))
                case kind:
                    marker = end(log, COMMIT if kind == "commit" else ABORT, producer_id)
                    if producer_id in opened:
                        undecided[marker] = opened.pop(producer_id)
            waits = [first for marker, first in undecided.items() if marker >= high_watermark]
            found = stable(log, high_watermark)
            assert found == min([high_watermark, *opened.values(), *waits])
            assert found >= before
            before = found
        log.abandon()


class TestAbortedTransactions:
    def test_the_format_is_kafkas(self) -> None:
        data = encode_aborted([AbortedTransaction(1, 2, 3, 4)])
        assert data.hex() == (
            "00000000000000000001000000000000000200000000000000030000000000000004"
        )
        assert read_aborted(data) == ([AbortedTransaction(1, 2, 3, 4)], "")

    @pytest.mark.parametrize(
        ("data", "count"),
        [
            (b"\0", 0),
            (encode_aborted([AbortedTransaction(1, 0, 3, 4)])[:-1], 0),
            (b"\0\1" + encode_aborted([AbortedTransaction(1, 0, 3, 4)])[2:], 0),
            (encode_aborted([AbortedTransaction(1, 3, 3, 4)]), 0),
            (encode_aborted([AbortedTransaction(1, 0, 3, 4)] * 2), 1),
        ],
    )
    def test_what_is_damaged_ends_the_entries(self, data: bytes, count: int) -> None:
        entries, problem = read_aborted(data)
        assert (len(entries), bool(problem)) == (count, True)

    def test_those_that_reach_into_a_range_are_listed(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log, 1)  # 0
        send(log, 2)  # 1
        end(log, ABORT, 1)  # 2
        send(log, 3)  # 3
        end(log, COMMIT, 3)  # 4
        end(log, ABORT, 2)  # 5
        first, second = AbortedTransaction(1, 0, 2, 1), AbortedTransaction(2, 1, 5, 6)
        assert log.aborted_between(0, 6) == [first, second]
        assert log.aborted_between(0, 1) == [first]
        assert log.aborted_between(2, 3) == [first, second]
        assert log.aborted_between(3, 6) == [second]
        assert log.aborted_between(6, 9) == []

    def test_each_segment_has_the_file_of_its_markers(
        self, open_log: OpenLog, directory: Path
    ) -> None:
        log = open_log()
        send(log, 1)
        end(log, ABORT, 1)
        log.roll()
        send(log, 2)
        log.roll()
        end(log, ABORT, 2)
        log.flush()
        log.checkpoint()
        files = {path.name: read_aborted(path.read_bytes())[0] for path in _files(directory)}
        assert files == {
            "00000000000000000000.txnindex": [AbortedTransaction(1, 0, 1, 2)],
            "00000000000000000003.txnindex": [AbortedTransaction(2, 2, 3, 4)],
        }
        assert log.encode_aborted(0, 2) == encode_aborted([AbortedTransaction(1, 0, 1, 2)])
        assert log.encode_aborted(2, 3) == b""

    def test_a_log_without_them_has_no_file(self, open_log: OpenLog, directory: Path) -> None:
        log = open_log()
        send(log)
        end(log, COMMIT)
        log.close()
        assert list(_files(directory)) == []


def _files(directory: Path) -> Iterator[Path]:
    return directory.glob("*.txnindex")


class TestRestarts:
    def _written(self, open_log: OpenLog) -> Log:
        log = open_log()
        send(log, 1)  # 0
        end(log, ABORT, 1)  # 1
        log.roll()
        send(log, 2)  # 2
        send(log, 3)  # 3
        end(log, Marker(False, 4), 2)  # 4
        send(log, 4)  # 5
        end(log, COMMIT, 4)  # 6
        return log

    def _check(self, log: Log) -> None:
        assert aborted(log) == [AbortedTransaction(1, 0, 1, 2), AbortedTransaction(2, 2, 4, 3)]
        assert log.producers.open_transactions == {3: 3}
        assert {one.producer_id: one.coordinator_epoch for one in log.producers}[2] == 4
        assert log.has_transactions
        assert stable(log) == 3
        assert send(log, 3, sequence=1) == 7  # it is open, nothing is asked
        end(log, ABORT, 3)
        assert aborted(log)[-1] == AbortedTransaction(3, 3, 8, 9)
        assert stable(log) == 9

    def test_after_a_clean_stop(self, open_log: OpenLog) -> None:
        log = self._written(open_log)
        log.close()
        self._check(open_log(clean=True, recovery_point=7))

    @pytest.mark.parametrize("recovery_point", [0, 2, 5])
    def test_after_a_crash(self, open_log: OpenLog, recovery_point: int) -> None:
        log = self._written(open_log)
        log.flush()
        self._check(open_log(recovery_point=recovery_point))

    def test_after_a_crash_that_a_checkpoint_preceded(self, open_log: OpenLog) -> None:
        log = self._written(open_log)
        log.flush()
        point = log.checkpoint()
        self._check(open_log(recovery_point=point))

    def test_what_a_crash_left_above_the_recovery_point_is_made_again(
        self, open_log: OpenLog, directory: Path
    ) -> None:
        log = self._written(open_log)
        log.flush()
        log.checkpoint()
        for path in _files(directory):
            path.write_bytes(b"")
        self._check(open_log(recovery_point=0))

    @pytest.mark.parametrize("damage", [b"", b"x", b"\0" * 34])
    def test_a_damaged_file_is_made_anew(
        self, open_log: OpenLog, directory: Path, damage: bytes
    ) -> None:
        log = self._written(open_log)
        log.close()
        first = min(_files(directory))
        first.write_bytes(first.read_bytes()[: -1 if not damage else None] + damage)
        self._check(open_log(clean=True, recovery_point=7))

    def test_a_lost_file_is_made_anew_with_the_other_indexes(
        self, open_log: OpenLog, directory: Path
    ) -> None:
        tiny = {"index_interval_bytes": 0, "max_message_bytes": 70}
        log = self._written(open_log)
        log.close()
        for path in (
            *_files(directory),
            *directory.glob("*.index"),
            *directory.glob("*.timeindex"),
        ):
            path.unlink()
        self._check(open_log(clean=True, recovery_point=7, **tiny))

    def test_without_snapshots_all_is_read(self, open_log: OpenLog, directory: Path) -> None:
        log = self._written(open_log)
        log.close()
        for path in directory.glob("*.snapshot"):
            path.unlink()
        self._check(open_log(clean=True, recovery_point=7))

    def test_a_marker_that_was_not_acknowledged_still_is_not(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log)
        marker = end(log, COMMIT)
        log.close()
        log = open_log(clean=True, recovery_point=2)
        assert stable(log, marker) == 0
        assert stable(log, marker + 1) == marker + 1

    def test_an_epoch_without_batches_is_known(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log)
        end(log, COMMIT, epoch=1, is_new_epoch=True)
        log.close()
        log = open_log(clean=True, recovery_point=2)
        late = transactional(b"late", sequence=1)
        assert refusal(log, late, 0) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert log.end_transaction(7, 1, COMMIT, 0, is_new_epoch=True).duplicate


class TestRemoving:
    def test_truncation_takes_markers_back(self, open_log: OpenLog, directory: Path) -> None:
        log = open_log()
        send(log)
        end(log, ABORT)
        log.flush()
        log.checkpoint()
        log.truncate_to(1)
        assert aborted(log) == []
        assert log.producers.open_transactions == {7: 0}
        assert stable(log) == 0
        assert [path.stat().st_size for path in _files(directory)] == [0]
        end(log, COMMIT)
        assert stable(log) == 2
        log.close()
        assert aborted(open_log(clean=True, recovery_point=2)) == []

    def test_truncation_takes_whole_segments_back(self, open_log: OpenLog) -> None:
        log = open_log()
        send(log)
        log.roll()
        end(log, ABORT)
        send(log, sequence=1)
        log.truncate_to(0)
        assert aborted(log) == []
        assert log.producers.open_transactions == {}
        assert stable(log) == 0

    def test_a_log_that_starts_anew_has_none(self, open_log: OpenLog, directory: Path) -> None:
        log = open_log()
        send(log)
        end(log, ABORT)
        send(log, sequence=1)
        log.flush()
        log.checkpoint()
        log.restart_at(0)
        assert aborted(log) == []
        assert not log.producers.open_transactions
        assert list(_files(directory)) == []

    def test_retention_takes_the_files_of_its_segments(
        self, open_log: OpenLog, directory: Path, clock: ManualClock
    ) -> None:
        log = open_log(retention_bytes=0, retention_ms=-1)
        send(log)
        end(log, ABORT)
        log.roll()
        send(log, sequence=1)
        end(log, ABORT)
        log.flush()
        log.checkpoint()
        assert log.apply_retention(2) == 1
        assert aborted(log) == [AbortedTransaction(7, 2, 3, 4)]
        assert [path.name for path in _files(directory)] == ["00000000000000000002.txnindex"]
        log.close()
        assert aborted(open_log(clean=True, recovery_point=4)) == [AbortedTransaction(7, 2, 3, 4)]

    def test_a_producer_in_a_transaction_is_never_forgotten(
        self, open_log: OpenLog, clock: ManualClock
    ) -> None:
        log = open_log(max_producers=2, producer_id_expiration_ms=1000)
        send(log, 1)
        for producer_id in (2, 3, 4):
            send(log, producer_id)
            end(log, COMMIT, producer_id)
        clock.advance(5)
        log.expire_producers()
        assert [one.producer_id for one in log.producers] == [1]
        assert log.producers.open_transactions == {1: 0}


class TestFollowing:
    @pytest.mark.parametrize("seed", range(20))
    def test_a_copy_knows_what_its_leader_knows(self, tmp_path: Path, seed: int) -> None:
        rng = random.Random(seed)
        logs = []
        for name in ("leader-0", "copy-0"):
            (tmp_path / name).mkdir()
            logs.append(Log.open(str(tmp_path / name), LogConfig(), ManualClock(), OsFiles()))
        leader, copy = logs
        sequences: dict[int, int] = {}
        for _ in range(40):
            producer_id = rng.randint(1, 4)
            if rng.random() < 0.6:
                sequence = sequences.get(producer_id, 0)
                send(leader, producer_id, sequence=sequence)
                sequences[producer_id] = sequence + 1
            else:
                end(leader, COMMIT if rng.random() < 0.5 else ABORT, producer_id)
            if rng.random() < 0.1:
                leader.roll()
            records = leader.read(copy.log_end_offset, rng.choice((1, 200, 10_000)))
            if records is not None:
                copy.append_as_follower(memoryview(records.read()))
        while copy.log_end_offset < leader.log_end_offset:
            records = leader.read(copy.log_end_offset, 10_000)
            assert records is not None
            copy.append_as_follower(memoryview(records.read()))
        assert aborted(copy) == aborted(leader)
        assert copy.producers.open_transactions == leader.producers.open_transactions
        for high_watermark in range(leader.log_end_offset + 1):
            assert stable(copy, high_watermark) == stable(leader, high_watermark)
