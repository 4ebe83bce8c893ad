"""How long it takes the broker to answer one request: ``python -m perf.answering``.

In this process, without sockets: from the frame to the parts of the answer, and until these would
have gone to a socket. The least of many runs is shown, which a busy machine changes little, so a
change of the code shows where it is made. Run it in both checkouts. ``python -m perf.answering
measure_commits`` shows commits of offsets alone.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import thread_time
from typing import Final

from perf.commit_load import commit_frame
from perf.requests import fetch_frame, produce_frame
from qbus.broker.controller import NewTopic
from qbus.broker.kafka.dispatch import Dispatcher, PendingReply
from qbus.broker.net.peer import Peer
from qbus.broker.net.transport import Buffer, Part, WriteBuffer
from qbus.broker.startup import running_broker
from qbus.clock import SystemClock
from qbus.config import BrokerConfig, ListenerInfo
from qbus.records import build_batch
from tests.support.data_plane import DataPlane
from tests.support.waiting import eventually

_PEER: Final = Peer(1, "127.0.0.1", ListenerInfo.plaintext("127.0.0.1", 9092))
_BATCHES: Final = ((1, 100), (160, 100), (1000, 100), (1000, 1000))
_RUNS: Final = 500
_IN_A_RUN: Final = 20
_BYTES: Final = 1 << 28  # written for a size of batches, at most
_CLIENTS: Final = 100  # that commit in one turn of the event loop, each to a group of its own
_COMMITTED: Final = (1, 20, 50)  # partitions at once
_TURNS: Final = 200


class Nowhere:
    """A transport that takes everything."""

    fd = -1
    pending = 0
    unsent = 0

    def receive_into(self, _buffer: memoryview) -> int:
        """Nothing comes."""
        raise BlockingIOError

    def send(self, data: Buffer, _flags: int) -> int:
        """Take one buffer."""
        return len(data)

    def send_many(self, data: Sequence[Buffer], _ancillary: tuple[()], _flags: int) -> int:
        """Take several."""
        return sum(map(len, data))

    def send_file(self, _fd: int, _position: int, count: int) -> int:
        """Take a region of a file, unread."""
        return count

    def flush(self) -> None:
        """There is nothing to send."""

    def close(self) -> None:
        """There is nothing to close."""


def least_us(runs: int, answer: Callable[..., object], *arguments: object) -> float:
    """The processor time that one answer took on average in the best of ``runs``, in us."""
    best = float("inf")
    for _ in range(runs):
        started = thread_time()
        for _ in range(_IN_A_RUN):
            answer(*arguments)
        best = min(best, thread_time() - started)
    return best / _IN_A_RUN * 1e6


async def measure(directory: Path) -> None:
    """Print a line for each size of a batch: one to append, one to fetch."""
    plane = DataPlane(directory, durability="memory")
    await plane.start()
    plane.broker.metrics = plane.metrics
    await plane.create("answering", len(_BATCHES))
    dispatch, output, transport = Dispatcher(plane.broker), WriteBuffer(), Nowhere()

    def answered(frame: memoryview) -> list[Part]:
        reply = dispatch(_PEER, frame)
        assert isinstance(reply, list), "the request was to be answered at once"
        return reply

    def sent(frame: memoryview) -> None:
        output.add(answered(frame))
        output.send(transport)

    print("batch             produce us   fetch us   fetch and send us")
    for index, (records, size) in enumerate(_BATCHES):
        batch = build_batch([(None, b"x" * size, (), 1_700_000_000_000)] * records)
        produce = memoryview(bytearray(produce_frame("answering", index, batch, 1)))[4:]
        fetch = memoryview(fetch_frame("answering", index))[4:]
        appends = min(_RUNS, _BYTES // len(batch) // _IN_A_RUN)
        appending = least_us(appends, answered, produce)
        reading, sending = least_us(_RUNS, answered, fetch), least_us(_RUNS, sent, fetch)
        print(f"{records:5} x {size:5} B  {appending:11.2f}{reading:11.2f}{sending:20.2f}")
    await plane.stop()


async def measure_commits(directory: Path) -> None:
    """Print a line for each number of partitions that clients commit at once, in the log.

    Each is the time from the frame to the parts of the answer, with what the event loop spends.
    """
    settings = {
        "log.dirs": [str(directory / "commits")],
        "offsets.storage": "log",
        "durability": "memory",
    }
    config = BrokerConfig(settings)
    async with running_broker(config, SystemClock(), [_PEER.listener]) as broker:
        await broker.controller.create_topics([NewTopic("commits", max(_COMMITTED))])
        await broker.groups.find_coordinator("any")
        (log,) = broker.groups.logs
        await eventually(lambda: not log.loading and any(log.shards()))
        dispatch = Dispatcher(broker)

        async def committed(frames: Sequence[memoryview]) -> None:
            replies = [dispatch(_PEER, frame) for frame in frames]
            done = asyncio.Event()
            pending = [reply for reply in replies if isinstance(reply, PendingReply)]
            pending[-1].on_done(done.set)
            await done.wait()
            assert sum(len(reply.result()) for reply in pending) == len(frames)

        print("partitions committed at once   us a commit   us a partition")
        for partitions in _COMMITTED:
            frames = [
                memoryview(commit_frame(f"commits-{number}", 7, partitions))[4:]
                for number in range(_CLIENTS)
            ]
            await committed(frames)
            best = float("inf")
            for _ in range(_TURNS):
                started = thread_time()
                await committed(frames)
                best = min(best, thread_time() - started)
            each = best / _CLIENTS * 1e6
            print(f"{partitions:28}{each:14.2f}{each / partitions:17.2f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="qbus-perf-") as _directory:
        for _measure in (measure, measure_commits):
            if not sys.argv[1:] or _measure.__name__ in sys.argv:
                asyncio.run(_measure(Path(_directory)))
