"""Logs with gaps in their offsets, as mirrors have them: read, cut, repaired and opened again."""

import threading
from pathlib import Path

import pytest

from qbus.broker.log import EpochStart, Log, LogConfig, OsFiles
from qbus.broker.log.segment import LogSegment
from qbus.broker.replicator.truncation_offset import Truncation, find_truncation
from qbus.clock import ManualClock
from qbus.errors import ErrorCode
from qbus.records import CorruptBatch, read_header
from tests.support.logs import batch

from .conftest import Mirror, OpenLog
from .mirrored import EPOCH, put, refused, spans
from .test_following import content, joined, placed

FAR = 2**33


class TestReading:
    @pytest.fixture
    def log(self, mirror: Mirror) -> Log:
        log = mirror(index_interval_bytes=1)
        put(log, *(placed(number * 10, b"a", b"b", timestamp=number) for number in range(30)))
        return log

    @pytest.mark.parametrize("max_bytes", [1, 1000, 1 << 20])
    def test_an_offset_in_a_gap_gives_what_follows_it(self, log: Log, max_bytes: int) -> None:
        for offset in range(290):
            expected = offset - offset % 10 if offset % 10 < 2 else offset - offset % 10 + 10
            found = log.read(offset, max_bytes, wait=True)
            assert found is not None
            assert read_header(found.read()).base_offset == expected

    def test_nothing_beyond_the_limit_is_given(self, log: Log) -> None:
        for offset in (2, 9, 10, 11):
            found = log.read(offset, 1 << 20, 12, wait=True)
            if offset < 12:
                assert found is not None
            assert found is None or (found.next_offset, len(found)) == (
                12,
                len(placed(0, b"a", b"b")),
            )
        assert log.read(12, 1 << 20, 12, wait=True) is None

    def test_all_of_it_is_sound(self, log: Log, mirror: Mirror) -> None:
        for how in {"index_interval_bytes": 1}, {"clean": True}:
            log.close()
            log = mirror(**how)
            assert len(spans(log)) == 30
            while not log.scrub(200):
                pass
            assert log.corruptions == ()

    def test_times_are_found(self, log: Log) -> None:
        found = log.offset_for_timestamp(7)
        assert found is not None
        assert (found.offset, found.timestamp) == (70, 7)
        newest = log.offset_of_max_timestamp()
        assert newest is not None
        assert newest.offset == 290

    def test_indexes_are_made_anew(self, log: Log, mirror: Mirror, directory: Path) -> None:
        log.close()
        for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
            path.write_bytes(b"\0" * path.stat().st_size)
        again = mirror(clean=True, index_interval_bytes=1)
        assert len(spans(again)) == 30
        found = again.offset_for_timestamp(7)
        assert found is not None
        assert found.offset == 70


class TestJumps:
    """Gaps beyond what the 31 bits of an index entry hold."""

    @pytest.fixture
    def log(self, mirror: Mirror) -> Log:
        log = mirror(index_interval_bytes=1)
        put(log, placed(0), placed(1))
        put(log, placed(FAR), placed(FAR + 1), placed(3 * FAR))
        put(log, placed(3 * FAR + 2**31), placed(3 * FAR + 2**31 + 1))
        return log

    EXPECTED = (0, 1, FAR, FAR + 1, 3 * FAR, 3 * FAR + 2**31, 3 * FAR + 2**31 + 1)

    def test_they_survive_restarts(self, log: Log, mirror: Mirror) -> None:
        for how in {}, {"index_interval_bytes": 1}, {"clean": True}, {"recovery_point": FAR}:
            log.close()
            log = mirror(**how)
            assert tuple(base for base, _ in spans(log)) == self.EXPECTED
            while not log.scrub(100):
                pass
            assert log.corruptions == ()

    @pytest.mark.parametrize("offset", [2, 5, 2**31, FAR - 1, FAR])
    def test_an_offset_within_gives_what_follows(self, log: Log, offset: int) -> None:
        found = log.read(offset, 1, wait=True)
        assert found is not None
        assert read_header(found.read()).base_offset == FAR
        assert log.read(offset, 1, 2, wait=True) is None

    @pytest.mark.parametrize("offset", [2, 5, 2**32, FAR - 1])
    def test_truncated_within_it_ends_before(self, log: Log, mirror: Mirror, offset: int) -> None:
        assert log.truncate_to(offset) == 2
        assert spans(log) == [(0, 0), (1, 1)]
        put(log, placed(2), placed(FAR))
        assert [base for base, _ in spans(mirror())] == [0, 1, 2, FAR]

    def test_what_a_crash_tore_off_before_one_is_not_passed_over(
        self, log: Log, mirror: Mirror, directory: Path
    ) -> None:
        log.abandon()
        first = directory / f"{0:020}.log"
        first.write_bytes(first.read_bytes()[: len(placed(0))])
        again = mirror()
        assert spans(again) == [(0, 0)]
        assert again.log_end_offset == 1

    def test_retention_goes_across(self, log: Log) -> None:
        log.delete_records_before(FAR + 1)
        log.flush()
        log.apply_retention()
        assert spans(log)[0][0] == log.log_start_offset == FAR + 1

    def test_retention_by_time_is_not_held_up_by_one(
        self, log: Log, mirror: Mirror, clock: ManualClock
    ) -> None:
        log.close()
        clock.advance(3600.0)
        again = mirror(retention_ms=60_000)
        again.apply_retention()
        assert again.log_start_offset == again.log_end_offset == 3 * FAR + 2**31 + 2
        assert again.segment_count == 1

    def test_a_follower_has_the_same(self, log: Log, tmp_path: Path, clock: ManualClock) -> None:
        config = LogConfig(qbus_mirror_source="a")
        follower = Log.open(str(tmp_path / "follower-0"), config, clock, OsFiles())
        follower.append_as_follower(memoryview(content(log)))
        assert content(follower) == content(log)


class TestSegments:
    def test_each_begins_where_the_one_before_ends(self, mirror: Mirror, directory: Path) -> None:
        log = mirror(segment_bytes=2 * len(placed(0)))
        put(log, *(placed(number * 10) for number in range(6)))
        put(log, placed(70))
        names = sorted(int(path.stem) for path in directory.glob("*.log"))
        assert names == [0, 11, 31, 51]
        assert len(spans(mirror())) == 7

    def test_a_segment_that_lost_its_end_ends_the_log(
        self, mirror: Mirror, directory: Path
    ) -> None:
        log = mirror(segment_bytes=2 * len(placed(0)))
        put(log, *(placed(number * 10) for number in range(6)))
        log.abandon()
        path = directory / f"{11:020}.log"
        path.write_bytes(path.read_bytes()[: len(placed(0))])
        assert spans(mirror()) == [(0, 0), (10, 10), (20, 20)]

    def test_retention_leaves_the_rest(self, mirror: Mirror) -> None:
        log = mirror(segment_bytes=2 * len(placed(0)), retention_bytes=0)
        put(log, *(placed(number * 10) for number in range(6)))
        log.flush()
        log.apply_retention(31)
        assert log.log_start_offset == 31
        assert spans(log) == [(40, 40), (50, 50)]
        assert mirror().log_start_offset == 31

    def test_a_batch_that_is_larger_than_a_segment_is_taken(self, mirror: Mirror) -> None:
        log = mirror(segment_bytes=1024)
        put(log, placed(0), placed(1, b"v" * 5000), placed(2))
        assert len(spans(mirror())) == 3


class TestTruncation:
    @pytest.mark.parametrize("index_interval_bytes", [1, 4096])
    @pytest.mark.parametrize("is_read", [True, False])
    @pytest.mark.parametrize(
        ("offset", "end"), [(0, 0), (1, 0), (2, 2), (9, 2), (10, 2), (11, 2), (12, 12), (99, 12)]
    )
    def test_it_ends_with_the_last_whole_batch(
        self, mirror: Mirror, offset: int, end: int, is_read: bool, index_interval_bytes: int
    ) -> None:
        log = mirror(index_interval_bytes=index_interval_bytes)
        put(log, placed(0, b"a", b"b"), placed(10, b"a", b"b"), placed(100))
        for known in range(101 if is_read else 0):
            log.read(known, 1)
        assert log.truncation_point(offset) == end
        assert log.truncate_to(offset) == end
        put(log, placed(100), follows=end)
        assert spans(mirror())[-1] == (100, 100)

    def test_records_are_deleted_up_to_anywhere(self, mirror: Mirror) -> None:
        log = mirror()
        put(log, placed(0), placed(10))
        assert log.delete_records_before(5) == 5
        assert spans(log) == [(10, 10)]


class TestEpochs:
    """A gap belongs to the epoch of the leader that left it: the one before has nothing there."""

    HISTORY = (
        placed(0, b"a", b"b", epoch=1),
        placed(100, epoch=2),
        placed(FAR, epoch=3),
        placed(3 * FAR, epoch=5),
    )
    EXPECTED = (EpochStart(1, 0), EpochStart(2, 2), EpochStart(3, 101), EpochStart(5, FAR + 1))

    @pytest.mark.parametrize("known", range(5))
    def test_each_begins_where_the_one_before_ended(self, mirror: Mirror, known: int) -> None:
        log = mirror(index_interval_bytes=1)
        if known:
            log.append_as_follower(joined(*self.HISTORY[:known]))
        log.flush()
        point = log.checkpoint()
        if known < len(self.HISTORY):
            log.append_as_follower(joined(*self.HISTORY[known:]))
        assert log.epoch_cache.entries == self.EXPECTED
        log.abandon()
        assert mirror(recovery_point=point).epoch_cache.entries == self.EXPECTED

    def test_so_it_does_for_who_leads(self, mirror: Mirror) -> None:
        log = mirror()
        log.append_as_follower(joined(self.HISTORY[0]))
        put(log, placed(70))
        assert log.epoch_cache.entries == (EpochStart(1, 0), EpochStart(EPOCH, 2))

    def test_so_it_does_where_only_batches_tell(self, mirror: Mirror, directory: Path) -> None:
        log = mirror()
        log.append_as_follower(joined(*self.HISTORY))
        log.close()
        (directory / "leader-epoch-checkpoint").unlink()
        assert mirror(clean=True).epoch_cache.entries == self.EXPECTED

    def test_who_has_what_a_later_leader_passed_over_gives_it_up(
        self, mirror: Mirror, tmp_path: Path, clock: ManualClock
    ) -> None:
        leader = mirror()
        leader.append_as_follower(joined(*self.HISTORY))
        config = LogConfig(qbus_mirror_source="a")
        ours = Log.open(str(tmp_path / "ours-0"), config, clock, OsFiles())
        ours.append_as_follower(joined(self.HISTORY[0], placed(2, *[b"v"] * 50, epoch=1)))
        answer = leader.epoch_cache.end_offset_for(1, leader.log_end_offset)
        cut = find_truncation(ours.epoch_cache, 0, ours.log_end_offset, answer)
        assert cut == Truncation(2, is_final=True)


class TestDamage:
    def test_a_bad_batch_is_repaired_from_another_replica(
        self, mirror: Mirror, directory: Path
    ) -> None:
        log = mirror(index_interval_bytes=1)
        put(log, *(placed(number * 10) for number in range(4)))
        log.flush()
        good = content(log)
        size = len(placed(0))
        (path,) = directory.glob("*.log")
        path.write_bytes(good[: 2 * size - 1] + b"!" + good[2 * size :])
        while not log.scrub():
            pass
        (corruption,) = log.corruptions
        damage = log.find_damage(corruption)
        assert damage is not None
        for bad in good[:size], good[2 * size :], good[size : 2 * size - 1]:
            with pytest.raises(CorruptBatch):
                log.repair(damage, bad)
        log.repair(damage, good[size:])
        assert path.read_bytes() == good
        assert log.corruptions == ()

    def test_offsets_that_go_back_are_corrupt(self, mirror: Mirror, directory: Path) -> None:
        log = mirror()
        put(log, *(placed(number * 10) for number in range(4)))
        log.flush()
        (path,) = directory.glob("*.log")
        data = bytearray(path.read_bytes())
        data[len(placed(0)) + 7] = 90  # the second one's offset
        path.write_bytes(data)
        again = mirror(recovery_point=31)
        assert again.corruptions
        assert not again.is_usable


class TestAfterwards:
    """The log of a topic that was a mirror once."""

    @pytest.fixture
    def log(self, mirror: Mirror) -> Log:
        log = mirror()
        put(log, placed(0, producer_id=1, producer_epoch=0, base_sequence=0), placed(100))
        log.update_config(LogConfig(qbus_mirror_former_source="a"))
        return log

    def test_it_goes_on_where_the_mirror_ended(self, log: Log, open_log: OpenLog) -> None:
        assert log.append(batch(b"v"), EPOCH).first_offset == 101
        assert log.append(batch(b"v"), EPOCH + 1).first_offset == 102
        log.flush()
        again = open_log(qbus_mirror_former_source="a")
        assert spans(again) == [(0, 0), (100, 100), (101, 101), (102, 102)]
        assert again.corruptions == ()

    def test_the_mirror_is_refused(self, log: Log) -> None:
        assert refused(log, placed(101)) is ErrorCode.INVALID_REQUEST

    def test_a_producer_of_this_cluster_begins_as_it_would_anywhere(self, log: Log) -> None:
        first = batch(b"v", producer_id=1 << 32, producer_epoch=0, base_sequence=0)
        assert log.append(first, EPOCH).first_offset == 101
        again = batch(b"v", producer_id=1 << 32, producer_epoch=0, base_sequence=0)
        assert log.append(again, EPOCH).duplicate


def test_a_log_that_begins_again_knows_nothing_of_its_former_indexes(mirror: Mirror) -> None:
    start = 5_000_000
    log = mirror(index_interval_bytes=1)
    for count in 5, 30:
        offsets = range(start, start + count)
        put(log, *(placed(offset, timestamp=offset) for offset in offsets))
        log.flush()
        log.checkpoint()
        for offset in offsets:
            found = log.read(offset, 1, wait=True)
            assert found is not None
            assert read_header(found.read()).base_offset == offset
            in_time = log.offset_for_timestamp(offset)
            assert in_time is not None
            assert in_time.offset == offset
        log.truncate_to(start)
        log.restart_at(0)


def test_a_log_may_learn_late_that_it_is_a_mirrors(open_log: OpenLog) -> None:
    log = open_log()
    log.update_config(LogConfig(qbus_mirror_source="a"))
    put(log, placed(0), placed(10))
    assert spans(log) == [(0, 0), (10, 10)]


def test_a_segment_that_is_begun_just_then_learns_it_too(open_log: OpenLog) -> None:
    state = open_log()._state
    told = threading.Thread(target=state.configure, args=(LogConfig(qbus_mirror_source="a"),))
    with state.lock:
        old = state.active
        new = LogSegment(state.cache, state.directory, 0, size=0, created_ms=0, gaps=old.gaps)
        told.start()
        told.join(0.1)
        state.segments = [new]
    told.join()
    assert state.active.gaps


def test_logs_of_other_topics_have_no_gaps(mirror: Mirror, open_log: OpenLog) -> None:
    put(mirror(), placed(0), placed(10))
    assert "begins with offset 10, not 1" in open_log().corruptions[0].problem
