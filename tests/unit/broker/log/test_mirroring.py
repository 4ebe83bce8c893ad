"""A mirror's log: another cluster's batches, at the offsets they have there, and nothing else."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.log import AppendInfo, EpochStart, Log, LogConfig, OsFiles, Provenance
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.records import Compression, iter_batches, set_base_offset
from qbus.records.control import (
    ControlType,
    Marker,
    control_batch,
    encode_int64,
    marker_batch,
)
from tests.support.logs import NOW_MS, batch, transactional

from .conftest import Mirror, OpenLog
from .mirrored import EPOCH, edited, headers, put, refused, spans
from .test_following import content, joined, placed

CONTROL, TRANSACTIONAL, LOG_APPEND_TIME = 0x20, 0x10, 0x08


def seen(log: Log, offset: int) -> list[int]:
    """The offsets of the batches with records that a consumer is sent from ``offset`` on."""
    found: list[int] = []
    end = log.visible_end(log.log_end_offset)
    while offset < end:
        sent = log.read_visible(offset, 1 << 20, end, wait=True)
        assert sent is not None
        data = sent.read()
        sent.close()
        batches = [header for header, _ in iter_batches(data)]
        assert batches
        assert batches[-1].last_offset >= offset
        found += [header.base_offset for header in batches if header.records_count]
        offset = batches[-1].last_offset + 1
    return found


class TestWhatIsKept:
    def test_all_but_the_leader_epoch(self, mirror: Mirror) -> None:
        log = mirror(message_timestamp_type="LogAppendTime", max_message_bytes=10, segment_bytes=50)
        sent = [
            placed(0, b"a", b"b", epoch=90, timestamp=5, producer_id=7, base_sequence=3),
            placed(2, b"c" * 99, epoch=91, attributes=LOG_APPEND_TIME, timestamp=NOW_MS * 2),
            placed(3, b"d" * 500, epoch=91, compression=Compression.LZ4, producer_id=7),
        ]
        info = put(log, *sent)
        size = sum(map(len, sent))
        assert info == AppendInfo(0, 3, -1, 0, size=size, records=4)
        expected = b"".join(bytes(one[:12]) + b"\0\0\0\x04" + bytes(one[16:]) for one in sent)
        assert content(log) == expected
        assert log.epoch_cache.entries == (EpochStart(EPOCH, 0),)

    def test_control_batches_and_what_belongs_to_transactions(self, mirror: Mirror) -> None:
        log = mirror()
        put(log, placed(0, attributes=TRANSACTIONAL, producer_id=1))
        put(log, placed(1, attributes=TRANSACTIONAL | CONTROL, producer_id=1))
        assert [header.is_control for header in headers(log)] == [False, True]

    @pytest.mark.parametrize("gap", [0, 7, 2**31, 2**40])
    def test_hidden_batches_and_a_gap_behind_them(self, mirror: Mirror, gap: int) -> None:
        log = mirror()
        hidden = memoryview(control_batch([(ControlType.BOUND, encode_int64(0))], NOW_MS))
        after = 3 + gap
        put(log, placed(0), edited(hidden, base_offset=1), edited(hidden, base_offset=2))
        assert log.visible_end(3) == 1
        put(log, placed(after), edited(hidden, base_offset=after + 1))
        for _ in range(2):
            for start in (0, 1, 2, after):
                assert seen(log, start) == [offset for offset in (0, after) if offset >= start]
            assert log.visible_end(after + 2) == after + 1
            log.close()
            log = mirror()

    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_what_compaction_left_of_a_batch(self, mirror: Mirror, count: int) -> None:
        log = mirror()
        put(log, edited(placed(0, *[b"v"] * count), last_offset_delta=9))
        put(log, placed(10))
        for opened in log, mirror():
            assert spans(opened) == [(0, 9), (10, 10)]

    def test_no_sequence_is_judged(self, mirror: Mirror) -> None:
        log = mirror()
        for offset, sequence in enumerate((5, 0, 0, 77)):
            one = placed(offset, producer_id=1, producer_epoch=0, base_sequence=sequence)
            assert not put(log, one).duplicate
        assert log.log_end_offset == 4


class TestOffsetsDecide:
    def test_what_is_there_already_is_a_duplicate(self, mirror: Mirror) -> None:
        log = mirror()
        sent = placed(0, b"a", b"b"), placed(2)
        put(log, *sent)
        assert put(log, *sent, follows=0) == AppendInfo(0, 2, -1, 0, duplicate=True)
        assert put(log, sent[0], follows=0) == AppendInfo(0, 1, -1, 0, duplicate=True)
        assert log.log_end_offset == 3

    def test_of_a_request_only_what_is_new_is_appended(self, mirror: Mirror) -> None:
        log = mirror()
        put(log, placed(0), placed(1))
        info = put(log, placed(0), placed(1), placed(2), placed(5), follows=0)
        size = len(placed(2)) + len(placed(5))
        assert info == AppendInfo(0, 5, -1, 0, size=size, records=2)
        assert spans(log) == [(0, 0), (1, 1), (2, 2), (5, 5)]

    def test_a_gap_at_the_source_is_one_here(self, mirror: Mirror) -> None:
        log = mirror()
        put(log, placed(0), placed(3, b"a", b"b"))
        put(log, placed(100))
        assert (log.log_end_offset, log.size) == (101, len(content(log)))
        assert spans(log) == [(0, 0), (3, 4), (100, 100)]

    def test_what_goes_across_the_end_is_refused(self, mirror: Mirror) -> None:
        log = mirror()
        put(log, placed(0, b"a", b"b"))
        assert refused(log, placed(1, b"x", b"y"), follows=0) is ErrorCode.INVALID_RECORD
        assert refused(log, placed(0), placed(1, b"x", b"y"), follows=0) is ErrorCode.INVALID_RECORD

    def test_what_overtakes_a_request_that_failed_is_refused(self, mirror: Mirror) -> None:
        log = mirror()
        put(log, placed(0))
        code = refused(log, placed(2), follows=2)
        assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        put(log, placed(1))
        put(log, placed(2))

    @pytest.mark.parametrize("follows", [-1, -5, 8])
    def test_what_nothing_can_come_before_is_refused(self, mirror: Mirror, follows: int) -> None:
        log = mirror()
        put(log, placed(0, *[b"v"] * 20))
        assert refused(log, placed(7), follows=follows) is ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize("order", [(5, 3), (3, 3), (3, 4)])
    def test_what_is_not_in_order_is_refused_as_a_whole(
        self, mirror: Mirror, order: tuple[int, ...]
    ) -> None:
        batches = [placed(offset, b"a", b"b") for offset in order]
        assert refused(mirror(), *batches, follows=0) is ErrorCode.INVALID_RECORD


class TestWhatIsRefused:
    def test_ordinary_producers(self, mirror: Mirror) -> None:
        log = mirror()
        with pytest.raises(ApiError, match="mirror of the one in a") as refusal:
            log.append(batch(b"v"), EPOCH)
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION

    def test_mirrors_of_other_idcs_and_topics(self, mirror: Mirror, open_log: OpenLog) -> None:
        assert refused(mirror(), placed(0), source="b") is ErrorCode.INVALID_REQUEST
        assert refused(mirror(), placed(0), topic_id="other") is ErrorCode.INVALID_REQUEST
        assert refused(open_log(), placed(0)) is ErrorCode.INVALID_REQUEST

    def test_who_does_not_know_the_topics_id_may_write(self, mirror: Mirror) -> None:
        put(mirror(), placed(0), topic_id="")

    @pytest.mark.parametrize(
        ("bad", "code"),
        [
            (memoryview(b""), ErrorCode.CORRUPT_MESSAGE),
            (placed(0)[:-1], ErrorCode.CORRUPT_MESSAGE),
            (placed(0)[:60], ErrorCode.CORRUPT_MESSAGE),
            (joined(placed(0), placed(1)[:30]), ErrorCode.CORRUPT_MESSAGE),
            (
                joined(placed(0), memoryview(bytes(placed(1))[:-1] + b"!")),
                ErrorCode.CORRUPT_MESSAGE,
            ),
            (placed(-1), ErrorCode.INVALID_RECORD),
            (placed(2**63 - 1), ErrorCode.INVALID_RECORD),
            (edited(placed(0), records_count=2), ErrorCode.INVALID_RECORD),
            (edited(placed(0), records_count=-1), ErrorCode.INVALID_RECORD),
            (edited(placed(0), last_offset_delta=-1), ErrorCode.INVALID_RECORD),
        ],
    )
    def test_bad_batches(self, mirror: Mirror, bad: memoryview, code: ErrorCode) -> None:
        assert refused(mirror(), bad) is code

    @given(st.binary(max_size=200), st.integers(0, 61))
    def test_bytes_that_nobody_vouched_for(self, data: bytes, at: int) -> None:
        good = bytes(placed(0, b"a" * 40))
        config = LogConfig(qbus_mirror_source="a", qbus_mirror_topic_id="id")
        with TemporaryDirectory() as directory:
            log = Log.open(f"{directory}/t-0", config, ManualClock(), OsFiles())
            for bad in data, good + data, good[:at] + data + good[at:]:
                try:
                    put(log, memoryview(bad))
                except ApiError:
                    continue
                assert log.log_end_offset > 0

    def test_a_leader_of_an_older_epoch(self, mirror: Mirror) -> None:
        log = mirror()
        put(log, placed(0))
        with pytest.raises(ApiError) as refusal:
            log.append_mirrored(placed(1), Provenance("a", "", 1), EPOCH - 1)
        assert refusal.value.code is ErrorCode.FENCED_LEADER_EPOCH


class TestTheStart:
    @pytest.mark.parametrize("clean", [True, False])
    def test_an_empty_log_starts_where_the_source_does(self, mirror: Mirror, clean: bool) -> None:
        log = mirror()
        assert put(log, placed(5_000_000)).log_start_offset == 5_000_000
        assert log.flush() == 5_000_001
        assert spans(log) == [(5_000_000, 5_000_000)]
        log.close()
        again = mirror(clean=clean)
        assert (again.log_start_offset, again.log_end_offset) == (5_000_000, 5_000_001)
        assert put(again, placed(5_000_001)).log_start_offset == 5_000_000

    def test_the_sources_start_may_come_before_its_first_batch(self, mirror: Mirror) -> None:
        put(mirror(), placed(70), start=64)
        again = mirror()
        assert again.log_start_offset == 64
        assert spans(again) == [(70, 70)]

    @pytest.mark.parametrize("start", [-1, 71, -7])
    def test_a_start_that_cannot_be_is_not_believed(self, mirror: Mirror, start: int) -> None:
        assert put(mirror(), placed(70), start=start).log_start_offset == 70

    @pytest.mark.parametrize(("base", "start"), [(0, 1), (0, 4), (70, 71), (70, 74)])
    def test_the_source_may_start_within_its_first_batch(
        self, mirror: Mirror, base: int, start: int
    ) -> None:
        log = mirror()
        sent = placed(base, *[b"v"] * 5), placed(base + 5)
        assert put(log, *sent, start=start).log_start_offset == start
        assert spans(log) == [(base, base + 4), (base + 5, base + 5)]
        assert log.epoch_cache.entries == (EpochStart(EPOCH, start),)
        assert put(log, placed(base + 6), start=start + 1).log_start_offset == start
        log.close()
        again = mirror(log_start_offset=start, clean=True)
        assert (again.log_start_offset, again.log_end_offset) == (start, base + 7)

    def test_a_log_with_records_starts_where_it_did(self, mirror: Mirror) -> None:
        log = mirror()
        put(log, placed(0))
        assert put(log, placed(70), start=64).log_start_offset == 0

    @pytest.mark.parametrize("start", [70, 2**40])
    def test_a_crash_that_loses_the_start_loses_no_records(
        self, mirror: Mirror, directory: Path, start: int
    ) -> None:
        log = mirror()
        put(log, placed(start))
        log.abandon()
        (directory / f"{start:020}.log").rename(directory / f"{0:020}.log")  # as it was before
        again = mirror()
        assert (again.log_end_offset, again.corruptions) == (start + 1, ())
        assert again.log_start_offset == (0 if start < 2**31 else start)
        assert spans(again) == [(start, start)]

    def test_a_follower_starts_there_when_it_is_told(self, mirror: Mirror) -> None:
        follower = mirror()
        follower.restart_at(5_000_000)
        follower.append_as_follower(joined(placed(5_000_007, epoch=EPOCH)))
        for opened in follower, mirror():
            assert (opened.log_start_offset, opened.log_end_offset) == (5_000_000, 5_000_008)


class TestTransactions:
    """A copy has its source's transactions; where a gap took an end, none stays open."""

    @staticmethod
    def of_producer(offset: int, producer_id: int = 7, sequence: int = 0) -> memoryview:
        made = transactional(b"v", producer_id=producer_id, epoch=3, sequence=sequence)
        set_base_offset(made, offset, 0)
        return made

    @staticmethod
    def marker(offset: int, producer_id: int = 7, *, commit: bool = True) -> memoryview:
        made = memoryview(marker_batch(producer_id, 3, Marker(commit, 1), NOW_MS))
        set_base_offset(made, offset, 0)
        return made

    def test_markers_are_copied_and_count(self, mirror: Mirror) -> None:
        log = mirror()
        put(log, self.of_producer(0), self.of_producer(1, 8))
        assert log.first_unstable(2) == 0
        put(log, self.marker(2), self.marker(5, 8, commit=False), follows=2)
        log.advance_stable(6)
        assert log.first_unstable(6) == 6
        (aborted,) = log.aborted_between(0, 6)
        assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (8, 1, 5)

    def test_what_a_gap_took_the_end_of_is_aborted_in_the_gap(self, mirror: Mirror) -> None:
        log = mirror()
        put(log, self.of_producer(0), self.of_producer(1, 8), placed(2))
        put(log, placed(50), follows=3, start=50)
        assert spans(log) == [(0, 0), (1, 1), (2, 2), (48, 48), (49, 49), (50, 50)]
        assert log.producers.open_transactions == {}
        log.advance_stable(51)
        assert log.first_unstable(51) == 51
        assert [one.producer_id for one in log.aborted_between(0, 51)] == [7, 8]
        log.close()
        assert len(mirror(clean=True).aborted_between(0, 51)) == 2

    def test_in_a_gap_without_room_as_many_as_there_is_room_for(self, mirror: Mirror) -> None:
        log = mirror()
        put(log, self.of_producer(0), self.of_producer(1, 8))
        put(log, placed(3), follows=2, start=3)
        assert list(log.producers.open_transactions) == [7]

    def test_a_gap_that_compaction_left_ends_nothing(self, mirror: Mirror) -> None:
        log = mirror()
        put(log, self.of_producer(0))
        put(log, placed(50), follows=1, start=0)
        assert log.producers.open_transactions == {7: 0}
