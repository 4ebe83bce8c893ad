"""Lines: every byte survives, wherever the chunks are cut."""

import asyncio
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.cli.produce import lines
from qbus.cli.produce.lines import LineSplitter, LineTooLongError, read_lines


def split(*chunks: bytes) -> list[bytes]:
    splitter = LineSplitter()
    result = [line for chunk in chunks for line in splitter.feed(chunk)]
    result += splitter.finish()
    assert splitter.count == len(result)
    return result


def test_a_line_is_the_text_before_a_newline() -> None:
    assert split(b"one\ntwo\n") == [b"one", b"two"]


def test_a_last_line_without_newline_counts() -> None:
    assert split(b"one\ntwo") == [b"one", b"two"]


def test_an_empty_stream_has_no_lines() -> None:
    assert split() == []
    assert split(b"") == []


def test_empty_lines_carriage_returns_and_zero_bytes_are_data() -> None:
    assert split(b"\n\r\n\0\n\xff\xfe\n") == [b"", b"\r", b"\0", b"\xff\xfe"]


def test_a_line_may_span_many_chunks() -> None:
    assert split(b"a", b"b", b"", b"c\nd", b"\n") == [b"abc", b"d"]


@given(st.lists(st.binary(max_size=8) | st.sampled_from([b"\n", b"a\nb", b"\n\n"])))
def test_chunking_makes_no_difference(chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    expected = whole.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert split(*chunks) == expected


def test_a_line_that_never_ends_is_refused_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 10)
    splitter = LineSplitter()
    assert splitter.feed(b"first\n123456") == [b"first"]
    with pytest.raises(LineTooLongError, match="line 2 is longer than 10 bytes"):
        splitter.feed(b"789012")


async def read(descriptor: int) -> list[bytes]:
    return [line async for batch in read_lines(descriptor) for line in batch]


async def test_a_file_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "CHUNK", 7)
    path = tmp_path / "log"
    path.write_bytes(b"one\r\n\ntwo with more\nlast")
    with path.open("rb") as file:
        assert await read(file.fileno()) == [b"one\r", b"", b"two with more", b"last"]


async def test_dev_null_is_an_empty_file() -> None:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        assert await read(descriptor) == []
    finally:
        os.close(descriptor)


async def test_a_pipe_yields_lines_while_the_writer_still_has_it_open() -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, b"one\ntwo\nunfini")
        batches = read_lines(reader)
        assert await anext(batches) == [b"one", b"two"]
        os.write(writer, b"shed\n")
        assert await anext(batches) == [b"unfinished"]
        os.close(writer)
        assert [batch async for batch in batches] == []
    finally:
        os.close(reader)


@pytest.mark.timeout(20)
async def test_waiting_for_a_pipe_never_blocks_the_loop() -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, b"one\n")
        batches = read_lines(reader)
        assert await anext(batches) == [b"one"]
        following = asyncio.ensure_future(anext(batches))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not following.done()
        os.write(writer, b"two\n")
        assert await following == [b"two"]
        os.close(writer)
        assert [batch async for batch in batches] == []
    finally:
        os.close(reader)


async def test_a_pipe_larger_than_its_buffer_arrives_whole() -> None:
    reader, writer = os.pipe()
    expected = [b"%d" % number * 10 for number in range(50_000)]

    def write() -> None:
        with os.fdopen(writer, "wb") as file:
            file.write(b"\n".join(expected))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert await read(reader) == expected
    finally:
        thread.join()
        os.close(reader)
