"""Writing to a reader that is slow, or gone."""

import asyncio
import os

import pytest

from qbus.cli.stdout import StdoutWriter

PIPE_BYTES = 4 * 1024 * 1024


async def read_all(descriptor: int, size: int) -> bytes:
    def read() -> bytes:
        data = b""
        while len(data) < size:
            data += os.read(descriptor, 65536)
        return data

    return await asyncio.to_thread(read)


async def test_all_of_it_is_written() -> None:
    reader, writer = os.pipe()
    data = os.urandom(PIPE_BYTES)
    writing = asyncio.create_task(StdoutWriter(writer).write(data))
    assert await read_all(reader, len(data)) == data
    await writing
    os.close(reader)
    os.close(writer)


async def test_a_reader_that_does_not_read_stops_only_the_write() -> None:
    reader, writer = os.pipe()
    writing = asyncio.create_task(StdoutWriter(writer).write(bytes(PIPE_BYTES)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not writing.done()
    await read_all(reader, PIPE_BYTES)
    await writing
    os.close(reader)
    os.close(writer)


async def test_a_closed_pipe_is_told() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        await StdoutWriter(writer).write(b"data")
    os.close(writer)


async def test_a_write_that_nobody_waits_for_any_more_does_no_harm() -> None:
    reader, writer = os.pipe()
    out = StdoutWriter(writer)
    writing = asyncio.create_task(out.write(bytes(PIPE_BYTES)))
    await asyncio.sleep(0)
    writing.cancel()
    await read_all(reader, PIPE_BYTES)
    next_write = asyncio.create_task(out.write(b"next"))
    assert await read_all(reader, 4) == b"next"
    await next_write
    os.close(reader)
    os.close(writer)
