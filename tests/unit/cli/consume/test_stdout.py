"""Writing to a reader that is slow, or gone."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator

import pytest

from qbus.cli.consume.stdout import StdoutWriter

PIPE_BYTES = 4 * 1024 * 1024


async def read_all(descriptor: int, size: int) -> bytes:
    def read() -> bytes:
        data = b""
        while len(data) < size:
            data += os.read(descriptor, 65536)
        return data

    return await asyncio.to_thread(read)


@pytest.fixture
async def pipe() -> AsyncIterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        with contextlib.suppress(OSError):
            os.close(descriptor)


async def test_all_of_it_is_written(pipe: tuple[int, int]) -> None:
    data = os.urandom(PIPE_BYTES)
    async with StdoutWriter(pipe[1]) as out:
        writing = asyncio.create_task(out.write(data))
        assert await read_all(pipe[0], len(data)) == data
        await writing


async def test_a_reader_that_does_not_read_stops_only_the_write(pipe: tuple[int, int]) -> None:
    async with StdoutWriter(pipe[1]) as out:
        writing = asyncio.create_task(out.write(bytes(PIPE_BYTES)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not writing.done()
        await read_all(pipe[0], PIPE_BYTES)
        await writing


async def test_a_closed_pipe_raises_broken_pipe(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    async with StdoutWriter(pipe[1]) as out:
        with pytest.raises(BrokenPipeError):
            await out.write(b"data")


async def test_a_cancelled_write_does_no_harm(pipe: tuple[int, int]) -> None:
    async with StdoutWriter(pipe[1]) as out:
        writing = asyncio.create_task(out.write(bytes(PIPE_BYTES)))
        await asyncio.sleep(0)
        writing.cancel()
        await read_all(pipe[0], PIPE_BYTES)
        next_write = asyncio.create_task(out.write(b"next"))
        assert await read_all(pipe[0], 4) == b"next"
        await next_write


async def test_its_thread_ends_with_it(pipe: tuple[int, int]) -> None:
    async with StdoutWriter(pipe[1]) as out:
        await out.write(b"data")
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "stdout"]
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
