"""What a log must hold after a crash, told to it step by step before the crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from qbus.broker.log import Log, LogConfig, LogManager
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.records import build_batch, iter_batches, iter_records, set_base_offset

from .simulated_files import Choice, SimulatedFiles

TOPIC_ID = bytes(range(16))
PRODUCER = 7

_DISORDER = (5, 0, 40, 20, 30, 10)  # how late records come, in milliseconds


@dataclass(frozen=True)
class Sent:
    """A batch of the idempotent producer."""

    first_offset: int
    sequence: int
    values: tuple[bytes, ...]


@dataclass
class Expectation:
    """Bounds of what may be found: ``stable`` was acknowledged, the rest may be there or not."""

    created: bool = False
    stable: int = 0
    least_start: int = 0
    greatest_start: int = 0
    values: dict[int, set[bytes]] = field(default_factory=dict)
    timestamps: dict[int, int] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)

    def cut(self, end: int) -> None:
        """What lies at ``end`` or later is gone for good."""
        self.values = {offset: values for offset, values in self.values.items() if offset < end}
        self.timestamps = {offset: ms for offset, ms in self.timestamps.items() if offset < end}
        self.sent = [sent for sent in self.sent if sent.first_offset + len(sent.values) <= end]

    @property
    def greatest_end(self) -> int:
        return max([*self.values, self.greatest_start - 1]) + 1


class Subject:
    """A log under test: does things to it and keeps its expectation true at every instant.

    A ``tolerant`` one takes note of refusals and goes on.
    """

    def __init__(
        self,
        files: SimulatedFiles,
        config: LogConfig,
        clock: ManualClock,
        *,
        tolerant: bool = False,
        directories: tuple[str, ...] = ("/data",),
    ) -> None:
        self.files = files
        self.directories = directories
        self.config = config
        self.clock = clock
        self.expected = Expectation()
        self.refusals: list[ApiError] = []
        self._tolerant = tolerant
        self._sequence = 0
        self._number = 0
        self.manager = open_manager(files, config, clock, directories)

    @property
    def log(self) -> Log:
        log = self.manager.get("topic", 0)
        if log is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return log

    @contextmanager
    def _trying(self) -> Iterator[None]:
        try:
            yield
        except ApiError as error:
            if not self._tolerant:
                raise
            self.refusals.append(error)

    def create(self) -> None:
        with self._trying():
            self.manager.create("topic", 0, TOPIC_ID, self.config, is_new=True)
            self.expected.created = True

    def append(self, *sizes: int, epoch: int = 0) -> None:
        """One idempotent batch with values of these sizes."""
        self.clock.advance(0.001)
        with self._trying():
            values = tuple(self._value(size) for size in sizes)
            first = self.log.log_end_offset
            self._expect(first, values)
            timestamp = self.clock.time_ms() - _DISORDER[self._number % len(_DISORDER)]
            batch = build(values, timestamp, self._sequence)
            try:
                info = self.log.append(batch, epoch)
            except ApiError:
                self._expect_not(first, values)
                raise
            assert (info.first_offset, info.duplicate) == (first, False)
            self.expected.timestamps |= dict.fromkeys(range(first, info.last_offset + 1), timestamp)
            self.expected.sent.append(Sent(first, self._sequence, values))
            self._sequence += len(values)

    def _value(self, size: int) -> bytes:
        self._number += 1
        return b"%06d" % self._number + b"v" * size

    def _expect(self, first: int, values: tuple[bytes, ...]) -> None:
        for offset, value in enumerate(values, first):
            self.expected.values.setdefault(offset, set()).add(value)

    def _expect_not(self, first: int, values: tuple[bytes, ...]) -> None:
        """What was refused must never be found."""
        for offset, value in enumerate(values, first):
            self.expected.values[offset].discard(value)
            if not self.expected.values[offset]:
                del self.expected.values[offset]

    def flush(self) -> None:
        with self._trying():
            self.expected.stable = max(self.expected.stable, self.log.flush())

    def checkpoint(self) -> None:
        with self._trying():
            self.manager.checkpoint()

    def delete_records_before(self, offset: int) -> None:
        with self._trying():
            self.expected.greatest_start = max(self.expected.greatest_start, offset)
            self.log.delete_records_before(offset)
            for directory in self.manager.directories:
                directory.checkpoint_log_starts()
            self.expected.least_start = offset

    def apply_retention(self) -> None:
        with self._trying():
            self.expected.greatest_start = self.log.log_end_offset
            self.log.apply_retention()
            self.expected.greatest_start = self.log.log_start_offset
            first = self.log.first_segment_offset
            self.expected.least_start = max(self.expected.least_start, first)

    def empty_trash(self) -> None:
        with self._trying():
            self.clock.advance(120)
            self.manager.empty_trash()

    def truncate(self, offset: int) -> None:
        with self._trying():
            point = self.log.truncation_point(offset)
            self.expected.stable = min(self.expected.stable, point)
            self.expected.least_start = min(self.expected.least_start, point)
            end = self.manager.truncate("topic", 0, offset)
            assert end == point
            self._cut(end)

    def follow(self, *sizes: int, epoch: int = 0) -> None:
        """Batches of one record each, copied from a leader in one answer."""
        self.clock.advance(0.001)
        with self._trying():
            first = self.log.log_end_offset
            values = tuple(self._value(size) for size in sizes)
            copied = bytearray()
            for offset, value in enumerate(values, first):
                batch = build((value,), self.clock.time_ms(), self._sequence)
                set_base_offset(batch, offset, epoch)
                copied += batch
                self.expected.timestamps[offset] = self.clock.time_ms()
                self.expected.sent.append(Sent(offset, self._sequence, (value,)))
                self._sequence += 1
            self._expect(first, values)
            assert self.log.append_as_follower(memoryview(copied)).first_offset == first

    def restart_at(self, offset: int) -> None:
        """Everything goes; a crash leaves what was there, its front part, or nothing."""
        with self._trying():
            self.expected.stable = 0
            self.expected.least_start = min(self.expected.least_start, offset)
            self.expected.greatest_start = max(self.expected.greatest_start, offset)
            self.manager.restart_at("topic", 0, offset)
            assert (self.log.log_start_offset, self.log.log_end_offset) == (offset, offset)
            self.expected.cut(0)
            self.expected.stable = self.expected.least_start = self.expected.greatest_start = offset
            self._sequence = 0

    def move(self, directory: str, meanwhile: Callable[[], None] | None = None) -> None:
        """Move to another data directory; ``meanwhile`` comes between the copy and the rest."""
        with self._trying():
            target = self.manager.directory_at(directory)
            if self.log.directory.startswith(f"{directory}/"):
                return  # created there because the other one had failed
            move = self.manager.begin_move(self.log, target)
            try:
                while not (move.is_done or move.problem):
                    move.copy(lambda count: None)
                    if meanwhile is not None:
                        meanwhile()
                    meanwhile = None
                    log = self.manager.finish_move(move, self.log.flushed_offset)
                    self.expected.stable = max(self.expected.stable, log.log_end_offset)
            finally:
                self.manager.end_move(move)
            assert self._tolerant or self.log.directory.startswith(f"{directory}/")

    def restart(self) -> None:
        end = self.expected.greatest_end
        self.manager.close()
        clean = all(not directory.offline for directory in self.manager.directories)
        self.manager = open_manager(self.files, self.config, self.clock, self.directories)
        if clean and not self._tolerant:
            self.expected.stable = end
        with self._trying():
            assert self.expected.stable <= self.log.log_end_offset
            self._cut(self.log.log_end_offset)

    def kill(self) -> None:
        """The process dies; the next one says what is stable, and must be right."""
        self.manager = open_manager(self.files, self.config, self.clock, self.directories)
        assert self.expected.stable <= self.log.flushed_offset
        self.expected.stable = self.log.flushed_offset
        self._cut(self.log.log_end_offset)

    def _cut(self, end: int) -> None:
        self.expected.cut(end)
        last = self.expected.sent[-1] if self.expected.sent else Sent(0, 0, ())
        self._sequence = last.sequence + len(last.values)


def open_manager(
    files: SimulatedFiles,
    config: LogConfig,
    clock: ManualClock,
    directories: tuple[str, ...] = ("/data",),
) -> LogManager:
    return LogManager.open(
        directories, lambda topic: config, clock, files, node_id=1, cluster_id="cluster", threads=1
    )


def build(values: tuple[bytes, ...], timestamp: int, sequence: int) -> bytearray:
    return build_batch(
        [(None, value, (), timestamp) for value in values],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
    )


def check_survives(subject: Subject, choice: Choice) -> None:
    """Crash now, open what is left, and hold it against what was promised."""
    expected = subject.expected
    files = subject.files.after_crash(choice)
    clock = ManualClock(subject.clock.time_ms())
    manager = open_manager(files, subject.config, clock, subject.directories)
    log = manager.get("topic", 0)
    if log is None:
        assert not expected.created, "an acknowledged partition is there"
        return
    assert log.corruptions == (), "a crash is not corruption"
    assert log.is_usable
    assert expected.stable <= log.log_end_offset <= expected.greatest_end
    assert expected.least_start <= log.log_start_offset <= expected.greatest_start
    check_content(log, expected)
    check_timestamps(log, expected)
    check_duplicates(log, expected, clock)
    check_goes_on(manager, log, clock)


def check_content(log: Log, expected: Expectation) -> None:
    """Every offset has a value that was appended there, densely and in order."""
    offset = log.log_start_offset
    for found, value in read_all(log):
        if found >= offset:
            assert found == offset
            assert value in expected.values[found]
            offset += 1
    assert offset == log.log_end_offset


def read_all(log: Log) -> list[tuple[int, bytes | None]]:
    records = []
    offset = log.log_start_offset
    while (found := log.read(offset, 1000, wait=True)) is not None:
        with found:
            if found.needs_verification:
                found.verify()
            for _, batch in iter_batches(found.read()):
                records += [(record.offset, record.value) for record in iter_records(batch)]
            offset = found.next_offset
    return records


def check_timestamps(log: Log, expected: Expectation) -> None:
    """For every record's time, the first record of that time or a later one is found."""
    there = {
        offset: timestamp
        for offset, timestamp in expected.timestamps.items()
        if log.log_start_offset <= offset < log.log_end_offset
    }
    for timestamp in set(there.values()):
        first = min(offset for offset, known in there.items() if known >= timestamp)
        found = log.offset_for_timestamp(timestamp)
        assert found is not None
        assert (found.timestamp, found.offset) == (there[first], first)


def check_duplicates(log: Log, expected: Expectation, clock: ManualClock) -> None:
    """The last batches that are there, sent again, are recognised."""
    end = log.log_end_offset
    there = [sent for sent in expected.sent if sent.first_offset + len(sent.values) <= end]
    for sent in there[-5:]:
        if sent.first_offset >= log.first_segment_offset:
            info = log.append(build(sent.values, clock.time_ms(), sent.sequence), 9)
            assert (info.first_offset, info.duplicate) == (sent.first_offset, True)
    assert log.log_end_offset == end


def check_goes_on(manager: LogManager, log: Log, clock: ManualClock) -> None:
    """The log takes, keeps and returns more, and closes and opens cleanly."""
    end = log.log_end_offset
    log.append(build_batch([(None, b"more", (), clock.time_ms())]), 9)
    assert log.flush() == end + 1
    assert read_all(log)[-1] == (end, b"more")
    manager.close()


Scenario = Callable[[Subject], None]
