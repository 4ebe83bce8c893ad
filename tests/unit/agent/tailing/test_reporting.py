"""The status of files says what they are now, whether it is made anew or not."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qbus.agent.config import Source, Tailing
from qbus.agent.positions import Position, Positions
from qbus.agent.positions.position import Identity
from qbus.agent.status import FileState, FileStatus
from qbus.agent.tailing.file import TailedFile
from qbus.agent.tailing.registry import Registry
from qbus.agent.tailing.reporting import FileReporter
from qbus.agent.tailing.source import SourceReader
from qbus.clock import ManualClock


class Reporting:
    """One tailed file that rests, and its reporter."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.positions = Positions(directory / "data", self.clock)
        source = SourceReader(
            Source(paths=(f"{directory}/*.log",), topic="lines"), Tailing(), self.positions, "host"
        )
        self.registry = Registry([source], self.positions, self.clock)
        path = directory / "a.log"
        path.write_bytes(b"first\n" * 100)
        position = Position(Identity.of(path.stat()), "lines", str(path))
        self.file = TailedFile(str(path), position, source)
        self.registry.files[self.file.identity, "lines"] = self.file
        self.reporter = FileReporter(self.registry, self.clock)
        self.file.refresh(0.0)
        self.file.read = self.file.position.offset = self.file.size

    def status(self) -> FileStatus:
        """The status of the file, which is what a reporter says that never made one before."""
        self.clock.advance(1)
        (found,) = self.reporter.files()
        (fresh,) = FileReporter(self.registry, self.clock).files()
        assert (found.state, found.path, found.error) == (fresh.state, fresh.path, fresh.error)
        assert (found.read, found.position, found.size) == (fresh.read, fresh.position, fresh.size)
        assert found.lag_seconds == fresh.lag_seconds
        return found


@pytest.fixture
def reporting(tmp_path: Path) -> Iterator[Reporting]:
    made = Reporting(tmp_path)
    yield made
    made.file.close()
    made.positions.close()


def test_the_status_of_a_file_that_rests_is_made_once(reporting: Reporting) -> None:
    assert reporting.status() is reporting.status()


def grow(file: TailedFile) -> None:
    file.size += 5


def read(file: TailedFile) -> None:
    file.size += 5
    file.read += 5
    file.acks.add(file.read, (0, 0))


def deliver(file: TailedFile) -> None:
    file.size += 5
    file.read += 5
    file.position.offset += 5


def fail(file: TailedFile) -> None:
    file.error = "Permission denied"


def refuse(file: TailedFile) -> None:
    file.refused, file.refusal = 1, "the record at byte 0"


def truncate(file: TailedFile) -> None:
    file.truncations = 1


def rotate(file: TailedFile) -> None:
    file.is_rotated = True


def rename(file: TailedFile) -> None:
    file.path += ".1"


@pytest.mark.parametrize(
    "change", [grow, read, deliver, fail, refuse, truncate, rotate, rename, TailedFile.close]
)
def test_a_change_is_told(reporting: Reporting, change: Callable[[TailedFile], None]) -> None:
    before = reporting.status()
    change(reporting.file)
    assert reporting.status() != before


def test_a_rate_ends(reporting: Reporting) -> None:
    reporting.status()
    deliver(reporting.file)
    assert reporting.status().rate == 5.0
    assert reporting.status().rate == 0.0


def test_a_lag_grows_and_ends(reporting: Reporting) -> None:
    reporting.file.behind_since = reporting.clock.monotonic()
    grow(reporting.file)
    assert (reporting.status().lag_seconds, reporting.status().lag_seconds) == (1.0, 2.0)
    reporting.file.read = reporting.file.position.offset = reporting.file.size
    assert reporting.status().lag_seconds == 0.0
    assert reporting.status().state is FileState.READING
