"""When a tailer notices changes: at once after a pause, together when they come quickly."""

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from qbus.agent.config import Source, Tailing
from qbus.agent.positions import Positions
from qbus.agent.positions.positions import FILE_NAME
from qbus.agent.tailing.discovery import Discovery, ScanResult
from qbus.agent.tailing.file import TailedFile
from qbus.agent.tailing.source import SourceReader
from qbus.agent.tailing.tailer import Tailer
from qbus.agent.tailing.watching import Noticed, Watcher
from qbus.clock import SystemClock
from tests.support.waiting import eventually

NEVER_MS = 600_000
MOST = 4096


class Reader:
    """A tailer of one directory, and what it found; only inotify tells it of changes."""

    def __init__(
        self,
        directory: Path,
        linger: float,
        on_ready: Callable[[TailedFile], None] | None = None,
        **settings: object,
    ) -> None:
        self.log = directory / "a.log"
        self.log.write_bytes(b"first\n")
        self.found: list[bytes] = []
        self.reads = 0
        clock = SystemClock()
        config = Source(
            paths=(f"{directory}/*.log",),
            topic="lines",
            from_beginning=True,
            **settings,  # type: ignore[arg-type]
        )
        tailing = Tailing(
            watch="inotify", poll_interval_ms=NEVER_MS, discovery_interval_ms=NEVER_MS
        )
        positions = Positions(directory / "data", clock)
        self.source = SourceReader(config, tailing, positions, "host")
        self.tailer = Tailer(
            [self.source],
            tailing,
            positions,
            clock,
            shares_partition=lambda _, __: True,
            save=positions.write,
            linger=linger,
        )
        self.tailer.on_ready = on_ready or self.read

    def read(self, file: TailedFile) -> None:
        """Read as a sender does: until the file has no more."""
        self.reads += 1
        while (chunk := self.tailer.read_chunk(file, MOST)) is not None:
            self.found += chunk.values
            if chunk.is_last:
                break

    def write(self, data: bytes) -> None:
        with self.log.open("ab") as file:
            file.write(data)

    def has(self, line: bytes) -> bool:
        return line in self.found


@asynccontextmanager
async def running(reader: Reader) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(reader.tailer.run())
    await eventually(lambda: reader.has(b"first"))
    reader.write(b"watched\n")
    await eventually(lambda: reader.has(b"watched"))
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_lines_after_a_pause_are_read_at_once(tmp_path: Path) -> None:
    linger = 1.0
    reader = Reader(tmp_path, linger)
    async with running(reader):
        for line in (b"one", b"two"):
            await asyncio.sleep(linger * 1.5)
            started = time.monotonic()
            reader.write(line + b"\n")
            await eventually(partial(reader.has, line))
            assert time.monotonic() - started < linger / 2


async def test_lines_far_apart_cost_one_look_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linger = 0.02
    reader = Reader(tmp_path, linger)
    looks = 0
    watcher_read = Watcher.read

    def counting(self: Watcher) -> Noticed:
        nonlocal looks
        looks += 1
        return watcher_read(self)

    async with running(reader):
        await asyncio.sleep(linger * 3)
        monkeypatch.setattr(Watcher, "read", counting)
        lines = [b"%d" % index for index in range(5)]
        for line in lines:
            reader.write(line + b"\n")
            await eventually(partial(reader.has, line))
            await asyncio.sleep(linger * 3)
    assert looks == len(lines)


async def test_what_changes_together_is_handed_over_together(tmp_path: Path) -> None:
    rounds: list[int] = []

    def together(notice: Callable[[], object]) -> None:
        before = reader.reads
        notice()
        rounds.append(reader.reads - before)

    reader = Reader(tmp_path, 0.05)
    reader.tailer.together = together
    async with running(reader):
        for name in "bcd":
            (tmp_path / f"{name}.log").write_bytes(b"a file\n")
        await eventually(lambda: len(reader.found) == 5)
        await asyncio.sleep(0.15)
        rounds.clear()
        for name in "abcd":
            with (tmp_path / f"{name}.log").open("ab") as file:
                file.write(b"more\n")
        await eventually(lambda: len(reader.found) == 9)
    assert max(rounds) >= 3


async def test_lines_in_quick_succession_are_read_together(tmp_path: Path) -> None:
    linger = 0.2
    reader = Reader(tmp_path, linger)
    async with running(reader):
        before, started = reader.reads, time.monotonic()
        lines = [b"%d" % index for index in range(100)]
        for line in lines:
            reader.write(line + b"\n")
            await asyncio.sleep(0.005)
        await eventually(lambda: reader.has(lines[-1]))
        pauses = (time.monotonic() - started) / (linger / 2)
        assert reader.reads - before <= 1 + pauses
    assert reader.found == [b"first", b"watched", *lines]


async def test_lines_during_a_scan_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(tmp_path, 0.01)
    begun, go_on = threading.Event(), threading.Event()
    scan = Discovery.scan

    def slow_scan(self: Discovery, known: set[str]) -> ScanResult:
        result = scan(self, known)
        begun.set()
        go_on.wait(20)
        return result

    async with running(reader):
        monkeypatch.setattr(Discovery, "scan", slow_scan)
        (tmp_path / "b.log").touch()
        await eventually(begun.is_set)
        reader.write(b"meanwhile\n")
        try:
            await eventually(lambda: reader.has(b"meanwhile"))
        finally:
            go_on.set()
        reader.write(b"later\n")
        await eventually(lambda: reader.has(b"later"))


async def test_a_file_renamed_during_a_scan_keeps_its_new_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(tmp_path, 0.01)
    away = tmp_path / "a.old"
    go_on = [threading.Event(), threading.Event()]
    begun: list[set[str]] = []
    scan = Discovery.scan

    def slow_scan(self: Discovery, known: set[str]) -> ScanResult:
        result = scan(self, known)
        begun.append(known)
        if len(begun) <= len(go_on):
            go_on[len(begun) - 1].wait(20)
        return result

    async with running(reader):
        (file,) = reader.tailer.files
        monkeypatch.setattr(Discovery, "scan", slow_scan)
        (tmp_path / "b.log").touch()
        await eventually(lambda: len(begun) == 1)
        try:
            reader.tailer.descriptors.close(file)  # so that it is searched when it is written to
            reader.log.rename(away)
            reader.log.write_bytes(b"of the next file\n")
            await eventually(lambda: file.path == str(away))
            go_on[0].set()
            await eventually(lambda: len(begun) == 2)
            assert file.path == file.position.path == str(away)
        finally:
            for event in go_on:
                event.set()
        await eventually(lambda: reader.has(b"of the next file"))


@pytest.mark.parametrize("size", [0, 1, 1000])
async def test_a_file_that_is_truncated_is_read_from_its_start(tmp_path: Path, size: int) -> None:
    reader = Reader(tmp_path, 0.01)
    async with running(reader):
        reader.write(b"x" * 300 + b"\n")
        await eventually(lambda: reader.has(b"x" * 300))
        for line in (b"one", b"two"):
            reader.log.write_bytes(line + b"\n" + b"y\n" * size)
            await eventually(partial(reader.has, line))
    assert reader.found.count(b"y") == 2 * size


async def test_a_line_that_was_read_before_it_was_told_of_is_read_once(tmp_path: Path) -> None:
    reader = Reader(tmp_path, 0.05)
    async with running(reader):
        reader.write(b"x" * 300 + b"\n")
        await eventually(lambda: reader.has(b"x" * 300))
        (file,) = reader.tailer.files
        reader.write(b"early\n")
        file.refresh(0.0)
        reader.read(file)
        assert reader.found[-1] == b"early"
        await asyncio.sleep(0.2)
        reader.write(b"later\n")
        await eventually(lambda: reader.has(b"later"))
    assert reader.found[-2:] == [b"early", b"later"]


async def test_a_line_in_an_unfinished_record_is_flushed_without_polls(tmp_path: Path) -> None:
    reader = Reader(tmp_path, 0.01, multiline_start=re.compile(rb"^\S"), multiline_timeout_ms=50)
    async with running(reader):
        reader.write(b"third\n  of two lines\n")
        await eventually(lambda: reader.has(b"third\n  of two lines"))


async def test_an_error_while_events_are_handled_ends_the_tailing(tmp_path: Path) -> None:
    def fail(file: TailedFile) -> None:
        reader.read(file)
        if reader.has(b"broken"):
            raise ZeroDivisionError

    reader = Reader(tmp_path, 0.01, fail)
    async with running(reader) as tailing:
        reader.write(b"broken\n")
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(20):
                await tailing


async def test_nothing_runs_while_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(tmp_path, 0.001)
    handled = 0
    watcher_read = Watcher.read

    def counting(self: Watcher) -> Noticed:
        nonlocal handled
        handled += 1
        return watcher_read(self)

    async with running(reader):
        reader.write(b"one\n")
        await eventually(lambda: reader.has(b"one"))
        await asyncio.sleep(0.05)
        monkeypatch.setattr(Watcher, "read", counting)
        await asyncio.sleep(0.2)
        assert handled == 0
        reader.write(b"two\n")
        await eventually(lambda: reader.has(b"two"))
        assert handled > 0


async def test_that_a_source_was_scanned_is_written_before_anything_is_delivered(
    tmp_path: Path,
) -> None:
    reader = Reader(tmp_path, 0.01)
    async with running(reader):
        copy = tmp_path / "copy"
        copy.mkdir()
        journal = tmp_path / "data" / FILE_NAME
        (copy / FILE_NAME).write_bytes(journal.read_bytes())
    survivors = Positions(copy, SystemClock())
    assert survivors.was_seen(reader.source.name)
    assert [position.path for position in survivors] == [str(reader.log)]
    survivors.close()


async def test_a_file_is_read_on_at_once_under_a_name_that_no_path_matches(tmp_path: Path) -> None:
    reader = Reader(tmp_path, 0.01)
    async with running(reader):
        with reader.log.open("ab", buffering=0) as file:
            (tmp_path / "a.log").rename(tmp_path / "a.old")
            (tmp_path / "a.log").write_bytes(b"of the next file\n")
            await eventually(lambda: reader.has(b"of the next file"))
            for line in (b"still there", b"and there"):
                file.write(line + b"\n")
                await eventually(partial(reader.has, line))
        (tmp_path / "other").write_bytes(b"a file that nobody wants\n")
        reader.write(b"the end\n")
        await eventually(lambda: reader.has(b"the end"))
    assert len(reader.found) == len(set(reader.found))
    assert not reader.has(b"a file that nobody wants")
