"""A power cut at every change that compaction makes to files: the log is as before, or after."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from qbus.broker.compaction.cleaning import Buffers, clean
from qbus.broker.compaction.plan import find_dirt
from qbus.broker.log import Log, LogConfig, LogManager
from qbus.clock import ManualClock
from qbus.records import build_batch, iter_batches, iter_records
from qbus.records.control import (
    Change,
    ChangeKind,
    ControlType,
    Shared,
    control_batch,
    encode_shared,
)

from .model import TOPIC_ID, open_manager
from .simulated_files import (
    Choice,
    DataKept,
    EverythingKept,
    Failure,
    NamesKept,
    NothingKept,
    RandomKept,
    SimulatedFiles,
)

pytestmark = pytest.mark.crash

CONFIG = LogConfig(
    compacts=True,
    segment_bytes=1500,
    index_interval_bytes=200,
    retention_ms=-1,
    delete_retention_ms=1000,
    file_delete_delay_ms=60_000,
)
PRODUCER = 7
_SMALL = Buffers(24 * 24, 0.9, 400)

Items = list[tuple[int, bytes | None, bytes | None]]


class Subject:
    """A compacted log; ``accepted`` are the contents that a crash may leave now."""

    def __init__(self, files: SimulatedFiles) -> None:
        self.files = files
        self.clock = ManualClock()
        self.manager = open_manager(files, CONFIG, self.clock)
        self.manager.create("topic", 0, TOPIC_ID, CONFIG, is_new=True)
        self.sequence = 0
        self.accepted: list[Items] = [[]]
        self.stable = 0

    @property
    def log(self) -> Log:
        log = self.manager.get("topic", 0)
        assert log is not None
        return log

    def put(self, *items: tuple[bytes, bytes | None], epoch: int = 0) -> None:
        """One batch of the idempotent producer."""
        made = [(key, value, (), self.clock.time_ms()) for key, value in items]
        fields: Any = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": self.sequence}
        self.log.append(build_batch(made, **fields), epoch)
        self.sequence += len(items)

    def hide(self) -> None:
        """What a queue says of its records."""
        change = Shared("g", [Change(ChangeKind.ACKNOWLEDGED, 0, 0)])
        self.log.append_own(
            control_batch([(ControlType.SHARED, encode_shared(change))], self.clock.time_ms()), 1
        )

    def flush(self) -> None:
        self.accepted = [items_of(self.log)]
        self.stable = self.log.flush()
        self.manager.checkpoint()

    def compact(self) -> None:
        """Compact group by group: after each of them the content is another one.

        Which ones, a copy shows first.
        """
        copy = self.files.after_crash(EverythingKept())
        manager = open_manager(copy, CONFIG, ManualClock(self.clock.time_ms()))
        log = manager.get("topic", 0)
        assert log is not None
        self.accepted = [items_of(log)]
        self._clean(manager, log, lambda _: self.accepted.append(items_of(log)))
        self.accepted.append(items_of(log))
        self._clean(self.manager, self.log, lambda _: None)

    def _clean(self, manager: LogManager, log: Log, pace: Callable[[int], None]) -> None:
        dirt = find_dirt(
            log.rewriter.segments,
            CONFIG,
            cleaned_before=manager.cleaned_before("topic", 0),
            limit=self.stable,
            now_ms=self.clock.time_ms(),
        )
        result = clean(log, dirt, buffers=_SMALL, now_ms=self.clock.time_ms(), pace=pace)
        manager.checkpoint_cleaned("topic", 0, result.end_offset)


def items_of(log: Log) -> Items:
    """Offset, key and value of every record."""
    found: Items = []
    offset = log.log_start_offset
    while (part := log.read(offset, 1000, wait=True)) is not None:
        with part:
            if part.needs_verification:
                part.verify()
            for header, batch in iter_batches(part.read()):
                if not header.is_control:
                    found += [(one.offset, one.key, one.value) for one in iter_records(batch)]
        offset = part.next_offset
    assert offset == log.log_end_offset
    return found


def live(subject: Subject) -> None:
    """A life with everything that compaction meets: tombstones, epochs, hidden batches."""
    for number in range(12):
        subject.put((b"a", b"v" * 150), (b"%d" % (number % 5), b"v" * 50), epoch=number // 8)
    subject.put((b"b", None), (b"0", None), epoch=1)
    subject.hide()
    subject.put((b"c", b"1"), epoch=1)
    subject.log.roll()
    subject.flush()
    subject.compact()
    for number in range(8):
        subject.put((b"a", b"w" * 200), (b"%d" % number, b"w"), epoch=2)
    subject.log.roll()
    subject.flush()
    subject.clock.advance(2)
    subject.compact()
    subject.compact()
    subject.put((b"z", b"1"), epoch=3)
    subject.flush()
    subject.accepted = [items_of(subject.log)]
    subject.clock.advance(120)
    subject.manager.empty_trash()


def check_survives(subject: Subject, files: SimulatedFiles, choice: Choice) -> None:
    """Open what a crash leaves: it is one of the accepted contents, sound, and takes more."""
    left = files.after_crash(choice)
    manager = open_manager(left, CONFIG, ManualClock(subject.clock.time_ms()))
    log = manager.get("topic", 0)
    if log is None:
        assert not subject.stable
        return
    assert log.corruptions == ()
    assert log.is_usable
    assert log.log_end_offset >= subject.stable
    found = items_of(log)
    below = [item for item in found if item[0] < subject.stable]
    assert (
        below
        in [[item for item in items if item[0] < subject.stable] for items in subject.accepted]
        or not subject.stable
    )
    names = left.list("/data/topic-0")
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    while not log.scrub(1000):
        pass
    assert log.corruptions == ()
    check_indexes(log)
    check_goes_on(manager, log)


def check_indexes(log: Log) -> None:
    """Every offset, and every batch, is found."""
    for offset in range(log.log_start_offset, log.log_end_offset):
        part = log.read(offset, 1, wait=True)
        assert part is not None
        with part:
            assert part.next_offset > offset
    for segment in log.rewriter.segments:
        assert segment.max_timestamp.timestamp >= -1
        hidden = [one for one in segment.batches_from(segment.base_offset) if one.header.is_hidden]
        assert bool(hidden) == bool(len(segment.indexes.controls))


def check_goes_on(manager: LogManager, log: Log) -> None:
    end = log.log_end_offset
    log.append(build_batch([(b"more", b"1", (), 0)]), 9)
    assert log.flush() == end + 1
    assert items_of(log)[-1] == (end, b"more", b"1")
    manager.close()


@pytest.mark.parametrize(
    "random_crashes", [1, pytest.param(20, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]
)
def test_every_state_opens_with_all_that_was_there(random_crashes: int) -> None:
    files = SimulatedFiles()
    subject = Subject(files)
    points = 0

    def crash(kind: str, path: str) -> None:
        nonlocal points
        points += 1
        is_of_compaction = ".cleaned" in path or ".swap" in path
        if points % 10 and not is_of_compaction:  # the others are tried elsewhere
            return
        seeds = range(points * random_crashes, (points + 1) * random_crashes)
        choices: list[Choice] = [NothingKept(), EverythingKept(), DataKept(), NamesKept()]
        files.observe = lambda kind, path: None
        for choice in [*choices, *(RandomKept(seed) for seed in seeds)]:
            try:
                check_survives(subject, files, choice)
            except BaseException as error:
                seed = getattr(choice, "_seed", "")
                error.add_note(f"crash {points}, before {kind} {path}: {choice} {seed}")
                raise
        files.observe = crash

    files.observe = crash
    live(subject)
    crash("the", "end")
    assert points > 100


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_whatever_fails_the_log_is_whole(error: int) -> None:
    """Each change fails in turn: what the next start finds is as before, or as after."""
    total = 0
    at = 0
    while at <= total or not total:
        at += 1
        files = SimulatedFiles()
        subject = Subject(files)
        for number in range(10):
            subject.put((b"a", b"v" * 150), (b"%d" % number, b"v"))
        subject.log.roll()
        subject.flush()
        begun = files.operations
        if total:
            files.failure = Failure(begun + at, error)
        try:
            subject.compact()
        except Exception:
            assert total
        if not total:
            total = files.operations - begun
            at = 0
            continue
        files.failure = None
        for choice in (NothingKept(), EverythingKept(), RandomKept(at)):
            check_survives(subject, files, choice)
    assert total > 15
