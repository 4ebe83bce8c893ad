"""Writes to stdout from a coroutine; a slow reader does not block the event loop."""

import asyncio
import os
import queue
import threading
from typing import Self

STDOUT = 1

_Job = tuple[bytes, "asyncio.Future[None]"]


class StdoutWriter:
    """Writes in a thread of its own; an async context manager.

    The thread is a daemon and bypasses Python's buffers: an interrupted command must not wait for a
    thread that is blocked by a full pipe.
    """

    def __init__(self, descriptor: int = STDOUT) -> None:
        self._descriptor = descriptor
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, name="stdout", daemon=True).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._jobs.put(None)

    async def write(self, data: bytes) -> None:
        """Return when all of ``data`` is written; BrokenPipeError if the reader has gone."""
        written: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((data, written))
        await written

    def _run(self) -> None:
        while job := self._jobs.get():
            data, written = job
            error = self._write(data)
            try:
                self._loop.call_soon_threadsafe(_resolve, written, error)
            except RuntimeError:  # the loop is closed
                return

    def _write(self, data: bytes) -> OSError | None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            return error
        return None


def _resolve(written: "asyncio.Future[None]", error: OSError | None) -> None:
    if written.done():  # cancelled
        return
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)
