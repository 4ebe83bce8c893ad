"""Bytes to stdout from a coroutine, without stopping the event loop when the reader is slow."""

import asyncio
import os
import queue
import threading
from typing import Self

STDOUT = 1

_Job = tuple[bytes, "asyncio.Future[None]"]


class StdoutWriter:
    """Writes in a thread of its own; an async context manager.

    The thread is a daemon, and writes past Python's buffers: one that is stuck in a full pipe can
    neither be cancelled nor waited for when the command is interrupted.
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
        """Return when all of ``data`` is written; BrokenPipeError when nobody reads any more."""
        written: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((data, written))
        await written

    def _run(self) -> None:
        while job := self._jobs.get():
            data, written = job
            error = self._write(data)
            try:
                self._loop.call_soon_threadsafe(_settle, written, error)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

    def _write(self, data: bytes) -> OSError | None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            return error
        return None


def _settle(written: "asyncio.Future[None]", error: OSError | None) -> None:
    if written.done():  # cancelled meanwhile
        return
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)
