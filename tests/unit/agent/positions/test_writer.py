"""Positions are written without the event loop waiting for a busy disk."""

import asyncio
import errno
import os
import threading
import time
from pathlib import Path

import pytest

from qbus.agent.positions import Position, Positions, PositionsWriter
from qbus.agent.positions import positions as module
from qbus.agent.positions.position import Identity
from qbus.agent.positions.positions import FILE_NAME, Changes
from qbus.agent.positions.writer import BUSY_S, SLOW_S, own_waits
from qbus.clock import ManualClock
from tests.support.waiting import eventually

ONE = Identity(1, 100)


class Disk(Positions):
    """Positions on a disk whose writes can be slow, be held up, and fail."""

    def __init__(self, directory: Path, clock: ManualClock) -> None:
        super().__init__(directory, clock)
        self._disk_clock = clock
        self.seconds = 0.0
        self.waits = 0
        self.is_waited_for = True
        self.error: Exception | None = None
        self.sync_error: OSError | None = None
        self.is_free = threading.Event()
        self.is_free.set()
        self.begun = 0
        self.threads: list[threading.Thread] = []

    def store(self, changes: Changes) -> None:
        self.begun += 1
        self.threads.append(threading.current_thread())
        assert self.is_free.wait(20)
        self._disk_clock.advance(self.seconds)
        self.waits += self.is_waited_for and self.seconds > 0
        if self.error is not None:
            raise self.error
        super().store(changes)

    def sync(self) -> None:
        self.begun += 1
        assert self.is_free.wait(20)
        with pytest.MonkeyPatch.context() as patch:
            if self.sync_error is not None:
                patch.setattr(os, "fdatasync", self._fail)
            super().sync()

    def _fail(self, _: int) -> None:
        assert self.sync_error is not None
        raise self.sync_error


class Agent:
    """A position that advances, and what a crash of the process would leave of it."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.path = directory / "data"
        self.disk = Disk(self.path, self.clock)
        self.writer = PositionsWriter(self.disk, self.clock, lambda: self.disk.waits)
        self.position = Position(ONE, "lines", "/var/log/a.log")
        self.disk.add(self.position)
        self.done: list[OSError | None] = []
        self._copies = 0

    def advance(self, offset: int) -> None:
        self.position.offset = offset
        self.disk.move(self.position)
        self.writer.write(self.done.append)

    def written(self) -> int | None:
        self._copies += 1
        copy = self.path / f"copy-{self._copies}"
        copy.mkdir()
        (copy / FILE_NAME).write_bytes((self.path / FILE_NAME).read_bytes())
        survivors = Positions(copy, self.clock)
        found = survivors.find(ONE, "lines")
        survivors.close()
        return None if found is None else found.offset

    async def make_busy(self) -> None:
        """See that writes are held up from now on."""
        self.disk.seconds = SLOW_S
        self.advance(1)
        self.disk.seconds = 0.0


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


async def test_a_disk_that_keeps_up_is_written_to_at_once(agent: Agent) -> None:
    for offset in (10, 20):
        agent.advance(offset)
        assert agent.written() == offset
    assert agent.done == [None, None]
    assert set(agent.disk.threads) == {threading.current_thread()}
    await agent.writer.close()


async def test_a_write_during_which_others_had_the_processor_says_nothing_of_the_disk(
    agent: Agent,
) -> None:
    agent.disk.is_waited_for = False
    await agent.make_busy()
    agent.advance(10)
    assert agent.written() == 10
    assert set(agent.disk.threads) == {threading.current_thread()}
    await agent.writer.close()


def test_a_thread_knows_how_often_it_waited() -> None:
    before = own_waits()
    time.sleep(0.001)
    assert own_waits() > before


async def test_nobody_waits_for_a_busy_disk(agent: Agent) -> None:
    await agent.make_busy()
    agent.disk.is_free.clear()
    agent.advance(10)
    await eventually(lambda: agent.disk.begun == 2)
    for offset in (20, 30):
        agent.advance(offset)
    assert agent.done == [None]
    assert agent.written() == 1
    agent.disk.is_free.set()
    await eventually(lambda: len(agent.done) == 4)
    assert agent.disk.begun == 3  # 20 and 30 were written together
    assert agent.written() == 30
    await agent.writer.close()


async def test_after_a_while_the_disk_is_tried_again(agent: Agent) -> None:
    await agent.make_busy()
    agent.clock.advance(BUSY_S)
    agent.advance(10)
    assert agent.done == [None, None]
    await agent.writer.close()


async def test_writes_go_on_beside_a_sync(agent: Agent) -> None:
    agent.advance(10)
    agent.disk.is_free.clear()
    syncing = asyncio.create_task(agent.writer.sync())
    await eventually(lambda: agent.disk.begun == 2)
    agent.advance(20)  # in the loop's thread it would wait for ever
    agent.disk.is_free.set()
    await syncing
    await eventually(lambda: agent.done == [None, None])
    assert agent.written() == 20
    await agent.writer.sync()
    assert not agent.disk.is_unsynced
    await agent.writer.close()


@pytest.mark.parametrize("is_busy", [False, True])
async def test_what_failed_is_told_once_and_written_later(
    agent: Agent, caplog: pytest.LogCaptureFixture, is_busy: bool
) -> None:
    if is_busy:
        await agent.make_busy()
    agent.disk.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    agent.done.clear()
    for offset in (10, 20):
        agent.advance(offset)
    await eventually(lambda: len(agent.done) == 2)
    assert agent.done == [agent.disk.error] * 2
    assert agent.writer.error is agent.disk.error
    assert caplog.text.count("positions cannot be written") == 1
    with pytest.raises(OSError, match="No space"):
        await agent.writer.written()
    agent.disk.error = None
    await agent.writer.written()
    assert agent.written() == 20
    agent.disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    agent.advance(30)
    await eventually(lambda: len(agent.done) == 3)
    assert caplog.text.count("positions cannot be written") == 2  # that is news again
    await agent.writer.close()


async def test_a_failed_sync_is_told_and_all_is_written_anew(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    agent.position.seen_at = agent.clock.time_ms()
    agent.advance(10)
    told: list[OSError | None] = []
    for _ in range(3):
        lost = (agent.path / FILE_NAME).stat().st_ino
        agent.disk.sync_error = OSError(errno.EIO, os.strerror(errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            await agent.writer.sync()
        told.append(agent.writer.sync_error)
        agent.disk.sync_error = None
        await agent.writer.sync()
        assert (agent.path / FILE_NAME).stat().st_ino != lost
        assert agent.written() == agent.position.offset
        told.append(agent.writer.sync_error)
        assert not agent.disk.is_unsynced
        agent.advance(agent.position.offset + 10)
    assert [error is None for error in told] == [False, True] * 3
    assert caplog.text.count("positions may not be on the disk") == 1
    assert agent.done == [None] * 4, "delivery goes on"
    await agent.writer.close()


async def test_an_unexpected_error_stops_nobody_for_ever(agent: Agent) -> None:
    await agent.make_busy()
    agent.disk.error = ValueError("a bug")
    agent.advance(10)
    await eventually(lambda: len(agent.done) == 2)
    assert "a bug" in str(agent.done[-1])
    agent.disk.error = None
    await agent.writer.written()
    assert agent.written() == 10
    await agent.writer.close()


async def test_a_forgotten_position_is_not_written_after_a_failure(agent: Agent) -> None:
    agent.disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    agent.advance(10)
    agent.disk.forget(agent.position)
    agent.disk.error = None
    await agent.writer.written()
    assert agent.written() is None
    await agent.writer.close()


async def test_a_large_journal_is_rewritten_beside_the_loop(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SMALLEST_COMPACTION", 2000)
    agent.position.seen_at = agent.clock.time_ms()
    agent.disk.mark_seen("source")
    agent.disk.compact()
    journal = agent.path / FILE_NAME
    offset = before = 0
    while (size := journal.stat().st_size) >= before:
        offset, before = offset + 1, size
        assert offset < 1000, "it was never rewritten"
        agent.advance(offset)
        await agent.writer.written()
    assert threading.current_thread() is not agent.disk.threads[-1]
    assert agent.written() == offset
    agent.advance(offset + 1)
    assert agent.written() == offset + 1
    await agent.writer.close()
    agent.disk.close()
    assert Positions(agent.path, agent.clock).was_seen("source")


async def test_closing_writes_what_is_left(agent: Agent) -> None:
    await agent.make_busy()
    agent.disk.is_free.clear()
    agent.advance(10)
    closing = asyncio.create_task(agent.writer.close())
    agent.advance(20)
    agent.disk.is_free.set()
    await closing
    assert agent.written() == 20
    assert all(not thread.is_alive() for thread in agent.disk.threads[1:])
