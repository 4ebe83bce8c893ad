"""The worst of each of Disque's commands, of 1 MB: how long the event loop stands still for it.

What is counted is work, as in :mod:`.test_worst_requests`. The suite sends a part of each, with
500 jobs, which is enough to tell a loop that pauses from one that does not.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from qbus.broker.disque.connection import Connection
from qbus.broker.net.memory_budget import MemoryBudget
from qbus.jobs import JobOptions, encode_id
from tests.support.loop_meter import Meter
from tests.support.waiting import eventually
from tests.support.worst_commands import MOST_JOBS, QUEUE, SIZE, TABLE, Scene
from tests.unit.broker.disque.jobs import Jobs

pytestmark = [pytest.mark.security, pytest.mark.sources]

MOST_CALLS: Final = 100_000
_MOST_CALLS_OF_A_PART: Final = 25_000
_PIPELINED: Final = 100_000
"""A pipeline gives way by time, of which counting takes most; 1,024 jobs are added together."""
_TAKE_JOBS: Final = {"debug", "getjob", "ackjob", "fastack", "deljob"}
_PART: Final = 20
_RECEIVED_AT_ONCE: Final = 64 * 1024
_PATIENCE_S: Final = 300.0


class Wire:
    """A client's end of a connection that is no socket."""

    def __init__(self, jobs: Jobs) -> None:
        self.received = bytearray()
        self.is_reading = True
        self.is_open = True
        loop = asyncio.get_running_loop()
        budget = MemoryBudget(1 << 30)
        self._connection = Connection(loop, 1, jobs.dispatcher, budget, self, 64 * SIZE)
        self._connection.connection_made(self)  # type: ignore[arg-type]

    async def ask(self, data: bytes) -> None:
        """Send commands, and wait until all of them are answered, or the connection is closed."""
        for start in range(0, len(data), _RECEIVED_AT_ONCE):
            await eventually(lambda: self.is_reading or not self.is_open, _PATIENCE_S)
            if self.is_open:
                self._connection.data_received(data[start : start + _RECEIVED_AT_ONCE])
            await asyncio.sleep(0)
        await eventually(self._is_answered, _PATIENCE_S)

    def _is_answered(self) -> bool:
        return not self.is_open or (self._connection.is_idle and not self._connection.unread)

    def close(self) -> None:
        """See :class:`asyncio.Transport`."""
        self.is_open = False

    abort = close

    # The transport

    def get_extra_info(self, name: str) -> Any:
        """The address."""
        return ("127.0.0.1", 1) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """Everything is taken at once."""

    def get_write_buffer_size(self) -> int:
        """See above."""
        return 0

    def write(self, data: bytes) -> None:
        """Take replies."""
        self.received += data

    def pause_reading(self) -> None:
        """Send nothing."""
        self.is_reading = False

    def resume_reading(self) -> None:
        """Send again."""
        self.is_reading = True

    # The owner

    def opened(self, connection: Connection) -> None:
        """It is there."""

    def closed(self, connection: Connection, reason: str) -> None:
        """It is gone."""
        self.is_open = False

    def used(self, *_: object) -> float:
        """There are no quotas."""
        return 0.0


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[Jobs]:
    made = Jobs(tmp_path, disque_admin_enable=True)
    await made.start()
    yield made
    await made.stop()


def test_every_command_has_its_worst(jobs: Jobs) -> None:
    assert set(TABLE) == set(jobs.dispatcher.table)


@pytest.mark.timeout(600)
async def test_no_part_of_a_command_holds_the_loop(jobs: Jobs) -> None:
    await _check(jobs, _PART, _MOST_CALLS_OF_A_PART)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
async def test_no_command_holds_the_loop(jobs: Jobs) -> None:
    await _check(jobs, 1, MOST_CALLS)


async def _check(jobs: Jobs, share: int, most_calls: int) -> None:
    await Wire(jobs).ask(b"ADDJOB %b x 0\r\nGETJOB FROM %b\r\n" % (QUEUE, QUEUE))  # imports much
    scene, beyond = await _scene(jobs, share), []
    for name, rows in TABLE.items():
        for why, make in rows:
            data = make(scene)
            assert len(data) < 1.4 * SIZE, (name, why)
            began = time.monotonic()
            async with Meter() as meter:
                await Wire(jobs).ask(data)
            line = f"{meter.most:8} calls in {time.monotonic() - began:.1f} s, {name}: {why}"
            print(line)
            if meter.most > (_PIPELINED if why.startswith("a pipeline") else most_calls):
                beyond.append(line)
            if name in _TAKE_JOBS and "not there" not in why:
                scene = await _scene(jobs, share)
    assert not beyond, "\n".join(beyond)


async def _scene(jobs: Jobs, share: int) -> Scene:
    """A node with as many jobs as one command may have, or their part."""
    count = MOST_JOBS // share
    add = b"ADDJOB %b x 0 RETRY 900" % QUEUE
    queued = await _added(jobs, (add + b"\r\n") * count)
    delayed = await _added(jobs, (add + b" DELAY 900\r\n") * count)
    topic = next(iter(jobs.plane.metadata.topics.values()))
    missing, gone = (
        [
            encode_id(topic.id, 0, offset, options, 0).encode()
            for offset in range(10**9, 10**9 + count)
        ]
        for options in (JobOptions(900, 1), JobOptions(900, 1, 60))
    )
    return Scene(queued, delayed, missing, gone, share)


async def _added(jobs: Jobs, commands: bytes) -> list[bytes]:
    wire = Wire(jobs)
    await wire.ask(commands)
    return [bytes(line[1:]) for line in wire.received.split(b"\r\n") if line[:1] == b"+"]
