"""The log file that the demo sends: found on this machine, and repeated if it is small."""

import codecs
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

#: Directories with text on machines without logs, such as fresh containers.
FALLBACKS = (Path("/var/lib/dpkg"), Path("/usr/share/doc"))

_HEAD = 64 * 1024

#: Larger logs are skipped, so that a demo takes seconds.
MAX_SIZE = 1_000_000_000


def find_log(root: Path = Path("/var/log"), max_size: int = MAX_SIZE) -> Path | None:
    """Return the largest readable text file below ``root``, else below the fallbacks."""
    for directory in (root, *FALLBACKS):
        for _, path in sorted(_candidates(directory, max_size), reverse=True):
            if is_text(path):
                return path
    return None


def is_text(path: Path) -> bool:
    """Whether the head of a file can be read and is UTF-8 without NUL bytes."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    if not head or b"\0" in head:
        return False
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(head, final=len(head) < _HEAD)  # a longer file's head may end mid-character
    except UnicodeDecodeError:
        return False
    return True


def _candidates(directory: Path, max_size: int) -> Iterator[tuple[int, Path]]:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            try:
                status = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and 0 < status.st_size <= max_size:
                yield status.st_size, path


#: Fewer bytes are sent too quickly to measure a throughput.
WORTH_MEASURING = 64_000_000

_MAX_TIMES = 100


class Source(NamedTuple):
    """The first ``size`` bytes of ``path``, ``times`` times. A log may grow while it is read."""

    path: Path
    size: int
    times: int

    @property
    def total_size(self) -> int:
        """Total bytes, without a newline that the end of the file may lack."""
        return self.size * self.times

    def open(self) -> BinaryIO:
        """Open the whole as one stream, in which every line ends with a newline."""
        return io.BufferedReader(_Repeated(self), 1024 * 1024)


def choose_times(size: int) -> int:
    """How many times a file of ``size`` bytes is sent, so that its throughput can be measured."""
    return max(1, min(WORTH_MEASURING // size, _MAX_TIMES))


class _Repeated(io.RawIOBase):
    def __init__(self, source: Source) -> None:
        self._file = source.path.open("rb")
        self._size = source.size
        self._rounds_left = source.times
        self._left = 0
        self._ends_line = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray") -> int:  # type: ignore[override]
        data = self._next(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()

    def _next(self, count: int) -> bytes:
        data = self._file.read(min(count, self._left))
        if data:
            self._left -= len(data)
            self._ends_line = data.endswith(b"\n")
            return data
        if not self._ends_line:
            self._ends_line = True
            return b"\n"
        if self._rounds_left == 0:
            return b""
        self._rounds_left -= 1
        self._left = self._size
        self._file.seek(0)
        return self._next(count)
