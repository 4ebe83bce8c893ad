"""How long it takes the broker to answer one request: ``python -m perf.answering``.

In this process, without sockets: from the frame to the parts of the answer, and until these would
have gone to a socket. The least of many runs is shown, which a busy machine changes little, so a
change of the code shows where it is made. Run it in both checkouts.
"""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import thread_time
from typing import Final

from perf.requests import fetch_frame, produce_frame
from qbus.broker.kafka.dispatch import Dispatcher
from qbus.broker.net.peer import Peer
from qbus.broker.net.transport import Buffer, Part, WriteBuffer
from qbus.config import ListenerInfo
from qbus.records import build_batch
from tests.support.data_plane import DataPlane

_PEER: Final = Peer(1, "127.0.0.1", ListenerInfo.plaintext("127.0.0.1", 9092))
_BATCHES: Final = ((1, 100), (160, 100), (1000, 100), (1000, 1000))
_RUNS: Final = 500
_IN_A_RUN: Final = 20
_BYTES: Final = 1 << 28  # written for a size of batches, at most


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


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="qbus-perf-") as _directory:
        asyncio.run(measure(Path(_directory)))
