"""Which generation of a log begins, and which waits."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from qbus.agent.config import Source, Tailing
from qbus.agent.positions import Position, Positions
from qbus.agent.positions.position import Identity
from qbus.agent.tailing.file import TailedFile
from qbus.agent.tailing.generations import Generations, age, family
from qbus.agent.tailing.source import SourceReader
from qbus.clock import ManualClock

PATIENCE_S = 20.0
"""Twice the time after which an unfinished line of a rotated file is shipped."""


class World:
    """Files of one log, and what waits for what."""

    def __init__(self, directory: Path) -> None:
        self.logs = directory
        self.files: list[TailedFile] = []
        self.now = 1000.0
        self.share = True
        self.refreshed: list[TailedFile] = []
        self.generations = Generations(lambda _, __: self.share)
        positions = Positions(directory / "data", ManualClock())
        config = Source(paths=(f"{directory}/*",), topic="lines", from_beginning=True)
        self.source = SourceReader(config, Tailing(), positions, "host")

    def put(self, name: str, data: bytes = b"line\n", written_at: int | None = None) -> TailedFile:
        path = self.logs / name
        path.write_bytes(data)
        if written_at is not None:
            os.utime(path, ns=(written_at, written_at))
        position = Position(Identity.of(path.stat()), "lines", str(path))
        self.source.positions.add(position)
        file = TailedFile(str(path), position, self.source)
        self.files.append(file)
        return file

    def waits(self, file: TailedFile) -> bool:
        def refresh(other: TailedFile) -> None:
            self.refreshed.append(other)
            if not other.retries:
                other.refresh(self.now)

        file.refresh(self.now)
        siblings = [f for f in self.files if f is not file and family(f) == family(file)]
        return self.generations.has_to_wait(file, lambda: siblings, refresh, self.now)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def read(file: TailedFile) -> None:
    while file.read_chunk(4096) is not None:
        pass


def names(files: list[TailedFile]) -> list[str]:
    return [Path(file.path).name for file in files]


def test_the_oldest_begins_and_each_other_waits_for_all_that_are_older(world: World) -> None:
    new, older, oldest = (
        world.put("a.log"),
        world.put("a.log.1", written_at=2),
        world.put("a.log.2", written_at=1),
    )
    assert [world.waits(file) for file in (new, older, oldest)] == [True, True, False]
    read(oldest)
    assert [world.waits(file) for file in (new, older)] == [True, False]
    read(older)
    assert not world.waits(new)
    assert not world.generations.is_anyone_waiting


def test_the_newest_has_the_name_of_the_log_whenever_it_was_written(world: World) -> None:
    new, older = world.put("a.log", written_at=1), world.put("a.log.1", written_at=2)
    assert not world.waits(older)
    assert world.waits(new)


def test_of_two_that_were_written_at_one_moment_the_higher_number_is_older(world: World) -> None:
    files = [world.put(f"a.log.{number}", written_at=7) for number in (1, 10, 2)]
    for file in files:
        file.refresh(0)
    assert names(sorted(files, key=age)) == ["a.log.10", "a.log.2", "a.log.1"]


@pytest.mark.parametrize("other", ["b.log.1", "a.txt.1", "a.log1x"])
def test_files_of_other_logs_are_not_awaited(world: World, other: str) -> None:
    world.put(other, written_at=1)
    assert not world.waits(world.put("a.log"))


def test_files_of_other_partitions_run_side_by_side(world: World) -> None:
    world.put("a.log.1", written_at=1)
    new = world.put("a.log")
    assert world.waits(new), "as long as it is not known where they go"
    world.share = False
    assert not world.waits(new)


def test_what_has_begun_goes_on(world: World) -> None:
    new = world.put("a.log")
    assert not world.waits(new)
    world.put("a.log.1", written_at=1)
    assert not world.waits(new)


def test_a_truncated_file_begins_anew(world: World) -> None:
    """Its copy, if there is one, has the lines that came before."""
    new = world.put("a.log", b"one\ntwo\n")
    assert not world.waits(new)
    read(new)
    world.put("a.log.1", b"one\ntwo\nthree\n", written_at=1)
    Path(new.path).write_bytes(b"4\n")
    assert world.waits(new)


def test_what_may_be_a_copy_is_not_awaited(world: World) -> None:
    """It waits itself for the file that it is a copy of."""
    world.put("a.log.1", written_at=1).is_new = True
    assert not world.waits(world.put("a.log"))


def test_what_is_written_to_an_older_one_afterwards_is_not_awaited(world: World) -> None:
    older, new = world.put("a.log.1", b"1\n", written_at=1), world.put("a.log", b"3\n")
    assert world.waits(new)
    read(older)
    with Path(older.path).open("ab") as late:
        late.write(b"2\n")
    older.refresh(world.now)
    assert not world.waits(new)


def test_an_older_one_that_cannot_be_read_is_told_of_and_not_awaited(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    older, new = world.put("a.log.1", written_at=1), world.put("a.log")
    assert world.waits(new)
    older.retries, older.error = 1, "Permission denied"
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert not world.waits(new)
    (told,) = caplog.messages
    assert told.startswith(f"{new.path} is read before {older.path}, ")
    assert told.endswith("Permission denied")


def drop(world: World, older: TailedFile) -> None:
    world.generations.left(older)


def delete(_: World, older: TailedFile) -> None:
    older.close()
    older.is_gone = True


def empty(_: World, older: TailedFile) -> None:
    older.size = 0


@pytest.mark.parametrize("leave", [drop, delete, empty])
def test_what_is_gone_is_not_awaited(
    world: World, leave: Callable[[World, TailedFile], None]
) -> None:
    older, new = world.put("a.log.1", written_at=1), world.put("a.log")
    assert world.waits(new)
    leave(world, older)
    assert not world.waits(new)


def test_an_unfinished_line_is_awaited_as_long_as_it_may_be_finished(world: World) -> None:
    older, new = world.put("a.log.1", b"one\ntw", written_at=1), world.put("a.log")
    assert world.waits(new)
    read(older)
    assert older.rest
    assert older.is_rotated, "so that the line is shipped as it is, in time"
    assert world.waits(new)
    world.now += PATIENCE_S
    assert not world.waits(new)


def test_an_unfinished_line_of_one_that_was_asked_for_first_is_finished_too(world: World) -> None:
    older, new = world.put("a.log.1", b"one\ntw", written_at=1), world.put("a.log")
    assert not world.waits(older)
    assert world.waits(new)
    assert older.is_rotated


def test_an_unfinished_line_among_numbered_files_may_still_be_finished(world: World) -> None:
    """They may be the logs of two writers: nothing says that the older one is done."""
    older, new = world.put("a.1", b"one\ntw", written_at=1), world.put("a.2", written_at=2)
    assert world.waits(new)
    read(older)
    assert not older.is_rotated
    assert world.waits(new)
    world.now += PATIENCE_S
    assert not world.waits(new)


def test_two_that_are_written_by_turns_do_not_wait_for_each_other(world: World) -> None:
    """Logs of two writers: which one was written last changes while they are judged."""
    first, second = world.put("a.1", b"1\n", written_at=1), world.put("a.2", b"2\n", written_at=2)
    assert world.waits(second)
    os.utime(first.path, ns=(3, 3))
    assert not world.waits(first)


def test_many_that_are_written_by_turns_do_not_wait_in_a_ring(world: World) -> None:
    files = [world.put(f"a.{number}", written_at=number) for number in (1, 2, 3)]
    first, second, third = files
    assert world.waits(third), "for the second, at least"
    second_was_judged = world.waits(second)
    assert second_was_judged, "for the first"
    os.utime(first.path, ns=(9, 9))
    assert not world.waits(first)


def test_one_of_many_generations_is_asked_for_only_what_is_left(world: World) -> None:
    """Asking again is quick, however many older ones there are: the last of them is read last."""
    older = [world.put(f"a.log.{number}", written_at=100 - number) for number in range(1, 20)]
    new = world.put("a.log")
    asked: list[Position] = []

    def note(older: Position, _: Position) -> bool:
        asked.append(older)
        return True

    world.generations = Generations(note)
    assert world.waits(new)
    asked.clear()
    assert world.waits(new)
    assert asked == [older[0].position]
    for file in reversed(older):
        assert world.waits(new)
        read(file)
    assert not world.waits(new)


def test_the_generations_of_a_log_are_looked_at_once_for_all_of_them(world: World) -> None:
    """Otherwise a directory of many generations takes the agent minutes when it starts."""
    files = [world.put(f"a.log.{number}", written_at=100 - number) for number in range(1, 20)]
    for file in files:
        world.waits(file)
    assert len(world.refreshed) == len(files) - 1


def test_those_that_need_not_wait_any_longer_are_due(world: World) -> None:
    newest, older, oldest = (
        world.put("a.log"),
        world.put("a.log.1", written_at=2),
        world.put("a.log.2", written_at=1),
    )
    assert world.waits(newest)
    assert names(world.generations.due(world.now)) == ["a.log.2"]
    assert not world.waits(oldest)
    assert world.generations.due(world.now) == []
    read(oldest)
    assert names(world.generations.due(world.now)) == ["a.log.1"]
    assert not world.waits(older)
    read(older)
    assert names(world.generations.due(world.now)) == ["a.log"]


def test_an_older_one_that_begins_anew_does_not_wait_for_those_that_wait_for_it(
    world: World,
) -> None:
    """What it has read when the others are judged is not what it holds after a truncation."""
    files = [world.put(f"a.{number}", written_at=number) for number in (1, 2, 3)]
    done, older, new = files
    assert not world.waits(done)
    read(done)
    done.has_begun = False
    assert world.waits(new)
    Path(done.path).write_bytes(b"x\n")
    assert not world.waits(older), "it does not wait for what came later"
    read(older)
    assert world.waits(done)
    assert not world.waits(new)
    read(new)
    assert not world.waits(done)


def test_who_waits_says_for_what(world: World, caplog: pytest.LogCaptureFixture) -> None:
    older, new = world.put("a.log.1", written_at=1), world.put("a.log")
    with caplog.at_level(logging.INFO):
        assert world.waits(new)
        assert world.waits(new)
    (told,) = caplog.messages
    assert (
        told == f"{new.path} waits until {older.path} is read, an older generation of the same log"
    )
