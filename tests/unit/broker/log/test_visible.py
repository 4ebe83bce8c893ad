"""Hidden batches: where they are, what consumers are sent instead, and what they add up to."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from qbus.broker.log import Log, LogConfig, OsFiles
from qbus.broker.log.controls import Fold
from qbus.broker.log.state import SharedState
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.records import (
    BatchHeader,
    Buffer,
    CorruptBatch,
    build_batch,
    check_crc,
    iter_batches,
    iter_records,
    read_header,
)
from qbus.records.control import (
    Announcement,
    ControlRecord,
    ControlType,
    Entries,
    control_batch,
    encode_announcement,
    encode_int64,
)
from qbus.records.header import hide_delayed
from tests.support.logs import NOW_MS

F = TypeVar("F")


class Remembered:
    """A fold that remembers everything, as text; it may say what retention must leave."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.needed_from: int | None = None
        self.done_before: int | None = None
        self.told_from: int | None = None
        self.undecided: set[int] = set()

    def part(self, kind: type[F]) -> F | None:
        return self if isinstance(self, kind) else None

    def delayed(self, header: BatchHeader, batch: Buffer) -> None:
        self.events += [f"delayed {record.offset}" for record in iter_records(batch)]
        if header.in_transaction:
            self.undecided.add(header.producer_id)

    def control(self, record: ControlRecord) -> None:
        if record.value == b"bad":
            raise CorruptBatch("bad")
        self.events.append(f"{record.type.name} {record.offset}")

    def delivered(self, announcement: Announcement) -> None:
        self.events.append(f"delivered {announcement.entries.offsets}")

    @property
    def awaits_markers(self) -> bool:
        return bool(self.undecided)

    def ended(self, producer_id: int, *, is_commit: bool) -> None:
        if producer_id in self.undecided:
            self.undecided.remove(producer_id)
            self.events.append(f"{'commit' if is_commit else 'abort'} {producer_id}")

    def succeed(self, former: Fold) -> None:
        self.events.append("succeeds another")

    def encode(self) -> Sequence[Buffer]:
        return [event.encode() + b"\n" for event in self.events]

    def restore(self, content: Buffer) -> None:
        self.events = bytes(content).decode().split("\n")[:-1]


@dataclass
class Life:
    """A log that is closed, killed, truncated, and what it should hold."""

    directory: Path
    clock: ManualClock = field(default_factory=ManualClock)
    segment_bytes: int = 1 << 30

    def open(self, *, recovery_point: int = 0, clean: bool = False) -> Log:
        directory = str(self.directory)
        files = OsFiles()
        shared = SharedState(directory.rpartition("/")[0], files, self.clock, make_fold=Remembered)
        config = LogConfig(segment_bytes=self.segment_bytes, index_interval_bytes=200)
        return Log.open(
            directory,
            config,
            self.clock,
            files,
            recovery_point=recovery_point,
            clean=clean,
            shared=shared,
        )


@pytest.fixture
def life(directory: Path) -> Life:
    return Life(directory)


def events(log: Log) -> list[str]:
    assert isinstance(log.fold, Remembered)
    return log.fold.events


def plain(*values: bytes) -> bytearray:
    return build_batch([(None, value, (), NOW_MS) for value in values or (b"v",)])


def bound(count: int = 1) -> bytearray:
    return control_batch([(ControlType.BOUND, encode_int64(0))] * count, NOW_MS)


def delayed(count: int = 1) -> bytearray:
    batch = plain(*[b"d"] * count)
    hide_delayed(batch, NOW_MS)
    return batch


def announced(batch: bytearray, offset: int) -> bytearray:
    header = read_header(batch)
    announcement = Announcement(header.crc, header.records_count, Entries((1,), (offset,)))
    return control_batch([(ControlType.DELIVERED, encode_announcement(announcement))], NOW_MS)


def sent(log: Log, offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, int, int]]:
    """First and last offset and count of each batch that a consumer is sent."""
    records = log.read_visible(offset, max_bytes, log.log_end_offset, wait=True)
    if records is None:
        return []
    with_all = records.read()
    records.close()
    assert len(with_all) == len(records)
    batches = []
    for header, batch in iter_batches(with_all):
        check_crc(batch, header)
        assert not header.is_control
        batches.append((header.base_offset, header.last_offset, header.records_count))
    return batches


def test_a_run_of_hidden_batches_becomes_one_that_is_empty(life: Life) -> None:
    log = life.open()
    log.append(plain(b"a", b"b"), 3)
    log.append_own(bound(2) + bound() + delayed(4), 3)
    log.append(plain(b"c"), 3)
    assert sent(log, 0) == [(0, 1, 2), (2, 8, 0), (9, 9, 1)]
    assert sent(log, 5) == [(2, 8, 0), (9, 9, 1)]
    assert sent(log, 9) == [(9, 9, 1)]
    assert log.visible_end(10) == 10


def test_hidden_batches_that_nothing_follows_are_not_there(life: Life) -> None:
    log = life.open()
    log.append(plain(b"a"), 0)
    log.append_own(delayed(3) + bound(), 0)
    assert sent(log, 0) == [(0, 0, 1)]
    assert sent(log, 1) == sent(log, 3) == []
    assert [log.visible_end(limit) for limit in (0, 1, 4, 5)] == [0, 1, 1, 1]
    log.append(plain(b"b"), 0)
    assert sent(log, 1) == [(1, 4, 0), (5, 5, 1)]
    assert log.visible_end(6) == 6


def test_a_log_of_hidden_batches_alone_has_nothing_for_consumers(life: Life) -> None:
    log = life.open()
    log.append_own(delayed(2), 0)
    log.roll()
    log.append_own(delayed(2), 0)
    assert sent(log, 0) == []
    assert log.visible_end(4) == 0


def test_replicas_read_the_batches_as_they_are(life: Life) -> None:
    log = life.open()
    log.append(plain(b"a"), 0)
    log.append_own(delayed(2), 0)
    with log.read(0, 1 << 20) or pytest.fail("nothing") as records:
        assert [header.is_hidden for header, _ in iter_batches(records.read())] == [False, True]


def test_what_is_too_far_is_out_of_range_as_elsewhere(life: Life) -> None:
    log = life.open()
    log.append_own(delayed(2), 0)
    with pytest.raises(ApiError) as refused:
        log.read_visible(3, 100, 3)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_times_are_looked_up_among_visible_records(life: Life) -> None:
    log = life.open()
    log.append(build_batch([(None, b"a", (), NOW_MS - 50)]), 0)
    log.append_own(bound(), 0)
    late = log.offset_for_timestamp(NOW_MS - 50)
    assert late is not None
    assert late.offset == 0
    assert log.offset_for_timestamp(NOW_MS - 10) is None
    greatest = log.offset_of_max_timestamp()
    assert greatest is not None
    assert (greatest.offset, greatest.timestamp) == (0, NOW_MS - 50)


def test_the_fold_hears_of_everything_in_order(life: Life) -> None:
    log = life.open()
    log.append_own(delayed(2) + bound(), 0)
    copy = plain(b"d")
    log.append_own(announced(copy, 0) + copy, 0)
    told = ["delayed 0", "delayed 1", "BOUND 2", "delivered (0,)"]
    assert events(log) == told
    assert events(life.open()) == told


def test_what_is_announced_counts_when_it_comes_and_not_before(life: Life) -> None:
    log = life.open()
    copy = plain(b"d")
    log.append_own(announced(copy, 7), 0)
    assert events(log) == []
    assert events(life.open()) == []
    log = life.open()
    log.append_own(copy, 0)
    assert events(log) == events(life.open()) == ["delivered (7,)"]


@pytest.mark.parametrize("other", [plain(b"x"), plain(b"d", b"d"), bound(), delayed()])
def test_another_batch_in_its_place_undoes_the_announcement(life: Life, other: bytearray) -> None:
    log = life.open()
    copy = plain(b"d")
    log.append_own(announced(copy, 7), 0)
    log.append_own(bytearray(other), 0)
    log.append_own(copy, 0)
    assert not [event for event in events(log) if event.startswith("delivered")]
    assert events(life.open()) == events(log)


def test_a_producers_batch_undoes_it_as_well(life: Life) -> None:
    log = life.open()
    copy = plain(b"d")
    log.append_own(announced(copy, 7), 0)
    log.append(plain(b"x"), 0)
    log.append_own(copy, 0)
    assert events(log) == events(life.open()) == []


def test_an_announced_batch_may_come_in_the_next_segment(life: Life) -> None:
    log = life.open()
    copy = plain(b"d")
    log.append_own(announced(copy, 7), 0)
    log.roll()
    log.append_own(copy, 0)
    assert events(log) == ["delivered (7,)"]
    log.close()
    assert events(life.open(clean=True)) == ["delivered (7,)"]


def test_followers_hear_the_same_as_their_leader(life: Life, tmp_path: Path) -> None:
    leader = life.open()
    copy = plain(b"d")
    leader.append_own(delayed(2) + bound() + announced(copy, 0) + copy, 0)
    (tmp_path / "other-0").mkdir()
    follower = Life(tmp_path / "other-0").open()
    for header, batch in iter_batches((leader.read(0, 1 << 20) or pytest.fail("none")).read()):
        assert header.base_offset == follower.log_end_offset
        follower.append_as_follower(memoryview(bytearray(batch)))
    assert events(follower) == events(leader)
    assert sent(follower, 0) == sent(leader, 0)


def test_a_control_record_that_makes_no_sense_is_passed_over_and_said(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    log = life.open()
    log.append_own(control_batch([(ControlType.BOUND, b"bad")], NOW_MS), 0)
    log.append_own(bound(), 0)
    assert events(log) == ["BOUND 1"]
    assert "hidden batch at offset 0 is ignored: bad" in caplog.text


def test_truncation_takes_back_what_the_fold_heard(life: Life) -> None:
    log = life.open()
    log.append_own(delayed(2), 0)
    copy = plain(b"d")
    log.append_own(announced(copy, 0) + copy, 0)
    log.truncate_to(3)
    assert events(log) == ["delayed 0", "delayed 1"]
    log.append(plain(b"x"), 0)
    assert events(log) == ["delayed 0", "delayed 1"]
    log.truncate_to(1)
    assert events(log) == []
    log.restart_at(0)
    assert events(log) == []


def test_a_snapshot_is_read_instead_of_what_it_sums_up(life: Life) -> None:
    log = life.open()
    log.append_own(delayed(2), 0)
    log.close()
    (snapshot,) = life.directory.glob("*.control")
    assert snapshot.name == f"{2:020d}.control"
    snapshot.write_bytes(snapshot.read_bytes())
    assert events(life.open(recovery_point=2, clean=True)) == ["delayed 0", "delayed 1"]


@pytest.mark.parametrize("damage", [b"", b"\0" * 4, b"\0\1\0\0\0\0junk", b"\0\2\0\0\0\0"])
def test_a_damaged_snapshot_is_passed_over(life: Life, damage: bytes) -> None:
    log = life.open()
    log.append_own(delayed(2), 0)
    log.close()
    (snapshot,) = life.directory.glob("*.control")
    snapshot.write_bytes(damage)
    assert events(life.open(clean=True)) == ["delayed 0", "delayed 1"]
    assert not snapshot.exists()


def test_retention_leaves_what_the_fold_needs(life: Life) -> None:
    log = life.open()
    for _ in range(3):
        log.append_own(delayed(2), 0)
        log.roll()
    log.flush()
    assert isinstance(log.fold, Remembered)
    log.fold.needed_from = 2
    log.delete_records_before(6)
    assert log.apply_retention() == 1
    log.fold.needed_from = None
    assert log.apply_retention() == 2


# Random lives: everything above at once, against a list.


def _batches(rng: random.Random) -> Iterator[tuple[bytearray, bool]]:
    """A batch, and whether it is hidden."""
    while True:
        hidden = rng.random() < 0.5
        count = rng.randint(1, 3)
        yield (bound(count) if hidden else plain(*[b"v" * rng.randint(1, 90)] * count)), hidden


@pytest.mark.parametrize("seed", range(40))
def test_consumers_get_all_that_is_visible_whatever_happens_to_the_log(
    life: Life, seed: int
) -> None:
    rng = random.Random(seed)
    life.segment_bytes = rng.choice([400, 1000, 1 << 30])
    log = life.open()
    model: list[tuple[int, int, bool]] = []  # first and last offset, hidden
    batches = _batches(rng)
    for _ in range(60):
        deed = rng.random()
        if deed < 0.8:
            batch, hidden = next(batches)
            info = log.append_own(batch, 0) if hidden else log.append(batch, 0)
            model.append((info.first_offset, info.last_offset, hidden))
        elif deed < 0.85:
            log.flush()
            point = log.checkpoint()
            log = life.open(recovery_point=point)
        elif deed < 0.9:
            log.close()
            log = life.open(clean=True)
        elif deed < 0.95 and model:
            first = rng.choice(model)[0]
            log.truncate_to(first)
            model = [one for one in model if one[1] < first]
        _check(log, model, rng)


def _check(log: Log, model: list[tuple[int, int, bool]], rng: random.Random) -> None:
    end = log.log_end_offset
    assert end == (model[-1][1] + 1 if model else 0)
    visible = max((last + 1 for _, last, hidden in model if not hidden), default=0)
    assert log.visible_end(end) == visible
    offset = rng.randint(0, end)
    expected = [one for one in model if one[1] >= offset and one[0] < visible]
    read: list[tuple[int, int, int]] = []
    while batches := sent(log, offset, rng.choice([0, 100, 1000])):
        assert batches[0][0] <= offset
        read += batches
        offset = batches[-1][1] + 1
    assert [(first, last) for first, last, count in read if count] == [
        (first, last) for first, last, hidden in expected if not hidden
    ]
    for one, following in pairwise(read):
        assert following[0] == one[1] + 1, "offsets have a gap"
    assert offset >= visible
