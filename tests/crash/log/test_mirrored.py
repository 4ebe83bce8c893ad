"""A power cut at every change that a mirror's log makes to its files.

What is found is a beginning of what the source has: all that was acknowledged, and never something
behind what is missing, for a mirror goes on at the log's end.
"""

from dataclasses import replace

import pytest

from qbus.broker.log import Log, LogManager, Provenance
from qbus.clock import ManualClock
from qbus.records import build_batch, iter_batches, set_base_offset

from .model import TOPIC_ID, open_manager
from .scenarios import CONFIG
from .simulated_files import (
    Choice,
    DataKept,
    EverythingKept,
    NamesKept,
    NothingKept,
    RandomKept,
    SimulatedFiles,
)

pytestmark = pytest.mark.crash

MIRROR = replace(CONFIG, qbus_mirror_source="a")
START = 5_000_000
FAR = 2**33
_RANDOM_CRASHES = 2


def build(offset: int, size: int) -> bytearray:
    """A batch of the source, two offsets long."""
    made = build_batch([(None, b"v" * size, (), offset), (None, b"w", (), offset)])
    set_base_offset(made, offset, 0)
    return made


class Mirrored:
    """A mirror's log, and what of its source it was given and has acknowledged."""

    def __init__(self, files: SimulatedFiles) -> None:
        self.files = files
        self.given: list[int] = []
        self.stable = 0
        self.start = 0
        self.manager: LogManager = open_manager(files, MIRROR, ManualClock())
        self.manager.create("topic", 0, TOPIC_ID, MIRROR, is_new=True)

    @property
    def log(self) -> Log:
        log = self.manager.get("topic", 0)
        assert log is not None
        return log

    def put(self, *offsets: int, size: int = 300, start: int = -1) -> None:
        """Copy batches that follow what is there."""
        follows = self.log.log_end_offset
        if not self.given:
            self.start = offsets[0] if start < 0 else start
        self.given += offsets
        batches = memoryview(b"".join(build(offset, size) for offset in offsets))
        self.log.append_mirrored(
            memoryview(bytearray(batches)), Provenance("a", "", follows, start), 0
        )

    def flush(self) -> None:
        """Acknowledge everything."""
        count = len(self.given)
        self.log.flush()
        self.stable = count

    def check_survives(self, choice: Choice) -> None:
        """Crash now, and open what is left."""
        manager = open_manager(self.files.after_crash(choice), MIRROR, ManualClock())
        log = manager.get("topic", 0)
        assert log is not None
        assert log.corruptions == (), "a crash is not corruption"
        found = offsets(log)
        assert found == self.given[: len(found)], "there is no hole"
        assert len(found) >= self.stable, "what was acknowledged is there"
        if self.stable:
            assert log.log_start_offset == self.start
        self._check_goes_on(log, len(found))
        manager.close()

    def _check_goes_on(self, log: Log, count: int) -> None:
        """The mirror brings the rest again, from where the log ends."""
        rest = self.given[count:]
        for offset in rest:
            said = Provenance("a", "", log.log_end_offset, self.start)
            log.append_mirrored(memoryview(build(offset, 300)), said, 1)
        log.flush()
        assert offsets(log) == self.given


def offsets(log: Log) -> list[int]:
    """Where the batches begin that a reader comes to."""
    found: list[int] = []
    offset = log.log_start_offset
    while (part := log.read(offset, 1000, wait=True)) is not None:
        with part:
            if part.needs_verification:
                part.verify()
            found += [header.base_offset for header, _ in iter_batches(part.read())]
            offset = part.next_offset
    return found


def starting(mirrored: Mirrored) -> None:
    mirrored.put(START + 3, START + 9, start=START)
    mirrored.flush()
    mirrored.put(START + 11)
    mirrored.manager.checkpoint()


def starting_unflushed(mirrored: Mirrored) -> None:
    mirrored.put(START)
    mirrored.put(*range(START + 10, START + 60, 10), size=700)
    mirrored.flush()


def starting_far(mirrored: Mirrored) -> None:
    mirrored.put(FAR, FAR + 2)
    mirrored.put(3 * FAR)
    mirrored.flush()


def gaps(mirrored: Mirrored) -> None:
    for offset in range(0, 80, 10):
        mirrored.put(offset, offset + 5, size=400)
        if not offset % 70:
            mirrored.flush()
        if not offset % 110:
            mirrored.manager.checkpoint()


def jumps(mirrored: Mirrored) -> None:
    mirrored.put(0, 2)
    mirrored.put(FAR, FAR + 2)
    mirrored.flush()
    mirrored.put(FAR + 50, 2 * FAR, 2 * FAR + 2**31, size=900)
    mirrored.flush()
    mirrored.manager.checkpoint()
    mirrored.put(5 * FAR, size=900)
    mirrored.put(5 * FAR + 2, size=900)
    mirrored.put(5 * FAR + 8, size=900)
    mirrored.flush()


@pytest.mark.parametrize(
    "scenario",
    [starting, starting_unflushed, starting_far, gaps, jumps],
    ids=lambda scenario: scenario.__name__,
)
def test_every_state_opens_with_a_beginning_of_the_source(scenario: object) -> None:
    assert callable(scenario)
    files = SimulatedFiles()
    mirrored = Mirrored(files)
    points = 0

    def crash(kind: str, path: str) -> None:
        nonlocal points
        points += 1
        seeds = range(points * _RANDOM_CRASHES, (points + 1) * _RANDOM_CRASHES)
        choices: list[Choice] = [NothingKept(), EverythingKept(), DataKept(), NamesKept()]
        for choice in [*choices, *(RandomKept(seed) for seed in seeds)]:
            try:
                mirrored.check_survives(choice)
            except BaseException as error:
                error.add_note(f"crash {points}, before {kind} {path}: {choice}")
                raise

    files.observe = crash
    scenario(mirrored)
    crash("the", "end")
    assert points > 5
