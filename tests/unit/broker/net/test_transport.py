"""Sending bytes and file regions, in order."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qbus.broker.net.transport import Part, PlainTransport, WriteBuffer


class FileRange:
    """A region of a real file that remembers whether it was let go."""

    def __init__(self, fd: int, position: int, length: int) -> None:
        self._fd = fd
        self.position = position
        self._length = length
        self.closed = 0

    def __len__(self) -> int:
        return self._length

    def fileno(self) -> int:
        return self._fd

    def read(self) -> bytes:
        return os.pread(self._fd, self._length, self.position)

    def close(self) -> None:
        self.closed += 1


CONTENT = os.urandom(1 << 20)


@pytest.fixture(scope="module")
def file_fd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    path: Path = tmp_path_factory.mktemp("output") / "file"
    path.write_bytes(CONTENT)
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


def send_all(parts: list[list[Part]]) -> bytes:
    """Send through a real socket whose reader is slow enough to fill it."""
    near, far = socket.socketpair()
    near.setblocking(False)
    received = bytearray()

    def read() -> None:
        while data := far.recv(50_000):
            received.extend(data)

    thread = threading.Thread(target=read)
    thread.start()
    output = WriteBuffer()
    try:
        for response in parts:
            output.add(response)
            output.send(PlainTransport(near))
        while not output.send(PlainTransport(near)):
            pass
    finally:
        near.close()
        thread.join()
        far.close()
    assert output.pending == 0
    return bytes(received)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=2000),
            st.tuples(st.integers(0, len(CONTENT)), st.integers(0, 300_000)),
        ),
        max_size=100,
    )
)
def test_parts_arrive_whole_and_in_order(file_fd: int, plan: list[bytes | tuple[int, int]]) -> None:
    expected = b""
    parts: list[list[Part]] = []
    regions = []
    for item in plan:
        if isinstance(item, bytes):
            expected += item
            parts.append([item])
        else:
            start, length = item
            length = min(length, len(CONTENT) - start)
            expected += CONTENT[start : start + length]
            regions.append(FileRange(file_fd, start, length))
            parts.append([b"h", regions[-1]])
            expected = expected[: len(expected) - length] + b"h" + CONTENT[start : start + length]
    assert send_all(parts) == expected
    assert all(region.closed == 1 for region in regions)


def test_a_full_socket_keeps_the_rest(file_fd: int) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    output = WriteBuffer()
    region = FileRange(file_fd, 0, len(CONTENT))
    output.add([b"header", region])
    assert not output.send(PlainTransport(near))
    assert 0 < output.pending < len(CONTENT)
    assert region.closed == 0
    output.close()
    assert region.closed == 1
    assert output.pending == 0
    near.close()
    far.close()


@pytest.mark.parametrize("length", [1000, 100_000])
def test_a_file_that_ends_early_is_an_error(file_fd: int, length: int) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    output = WriteBuffer()
    output.add([FileRange(file_fd, len(CONTENT) - 10, length)])
    with pytest.raises(OSError, match="ended before"):
        output.send(PlainTransport(near))
    output.close()
    near.close()
    far.close()
