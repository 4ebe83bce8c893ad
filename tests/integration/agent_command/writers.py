"""Programs that write logs, and rotate them, each in its own way.

Each line tells its file (a generation's number) and its place in it, and has a random length. What
a writer finished it keeps, to be compared.
"""

import gzip
import os
import random
import shutil
import threading
from collections import defaultdict
from pathlib import Path
from typing import Self

LINES_A_FILE = 200


class Writer:
    """Writes lines of one log until told to stop, and rotates it after so many of them.

    ``handing_over`` is set while an agent is not about to be killed, ``arrived`` is the latest file
    of which a line has arrived. A writer that hides its files, so that only who follows them has
    them still, does not rotate while nobody does.
    """

    pattern = "app.log*"

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.path = directory / "app.log"
        self.random = random.Random(seed)
        self.lines: dict[int, list[bytes]] = defaultdict(list)
        self.generation = 0
        self.handing_over = threading.Event()
        self.arrived = -1
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.open()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Finish the last line, and end."""
        self._stopped.set()
        self._thread.join()
        self.file.close()

    @property
    def is_followed(self) -> bool:
        """Whether an agent has the file open and is not about to be killed."""
        return self.handing_over.is_set() and self.arrived >= self.generation

    @property
    def handed_over(self) -> list[bytes]:
        """All lines in files that are not written to any more."""
        return [line for number in range(self.generation) for line in self.lines[number]]

    @property
    def latest(self) -> bytes:
        """The last line of all."""
        return next(lines[-1] for _, lines in sorted(self.lines.items(), reverse=True) if lines)

    @property
    def count(self) -> int:
        """The number of lines that were written."""
        return sum(map(len, list(self.lines.values())))

    def has_more_than(self, count: int) -> bool:
        """Whether more than ``count`` lines were written."""
        return self.count > count

    def open(self) -> None:
        """Begin a new file."""
        self.file = self.path.open("ab", buffering=0)

    def rotate(self) -> None:
        """Let another file take the place of the one that is written to."""
        raise NotImplementedError

    def next_generation(self) -> None:
        """Count a new file."""
        self.generation += 1

    def _run(self) -> None:
        while not self._stopped.wait(self.random.random() * 0.01):
            for _ in range(self.random.randrange(1, 30)):
                self._write_line()
            if len(self.lines[self.generation]) >= LINES_A_FILE:
                self.rotate()

    def _write_line(self) -> None:
        number = len(self.lines[self.generation])
        filler = self.random.randbytes(self.random.randrange(0, 150)).hex().encode()
        line = b"%d %d %b" % (self.generation, number, filler)
        if self.random.random() < 0.1:
            half = self.random.randrange(len(line))
            self.file.write(line[:half])
            self.file.write(line[half:] + b"\n")
        else:
            self.file.write(line + b"\n")
        self.lines[self.generation].append(line)


class Rename(Writer):
    """``app.log`` becomes ``app.log.1``, that becomes ``app.log.2``, and so on (logrotate)."""

    def rotate(self) -> None:
        old = sorted(self.directory.glob("app.log.*[0-9]"), key=lambda path: -int(path.suffix[1:]))
        for path in old:
            path.rename(path.with_suffix(f".{int(path.suffix[1:]) + 1}"))
        self.path.rename(self.path.with_suffix(".log.1"))
        for _ in range(self.random.randrange(3)):  # before the writer notices
            self._write_line()
        self.file.close()
        self.next_generation()
        self.open()


class Create(Writer):
    """Each file has a name of its own, by number, and keeps it."""

    pattern = "app-*.log"

    def open(self) -> None:
        self.path = self.directory / f"app-{self.generation:05d}.log"
        super().open()

    def rotate(self) -> None:
        self.file.close()
        self.next_generation()
        self.open()


class RenameAway(Rename):
    """Like ``Rename``; no path matches rotated files. Does not rotate while the agent is away."""

    pattern = "app.log"

    def rotate(self) -> None:
        if self.is_followed:
            super().rotate()


class Delete(Writer):
    """The file is deleted while it is open, written to a little more, and made anew.

    Nobody but the agent has it then, so this waits until the agent has it whole.
    """

    pattern = "app.log"

    def rotate(self) -> None:
        if self.is_followed:
            self.path.unlink()
            for _ in range(self.random.randrange(3)):
                self._write_line()
            self.file.close()
            self.next_generation()
            self.open()


class Symlink(Writer):
    """``app.log`` leads to the file that is written to now."""

    pattern = "app.log"

    def open(self) -> None:
        target = self.directory / f"target-{self.generation:05d}"
        self.file = target.open("ab", buffering=0)
        link = self.directory / "link.tmp"
        link.symlink_to(target.name)
        link.rename(self.path)

    def rotate(self) -> None:
        if self.is_followed:
            self.file.close()
            self.next_generation()
            self.open()


class Compress(Rename):
    """Like ``Rename``; rotated files are compressed later."""

    def rotate(self) -> None:
        super().rotate()
        plain = self.path.with_suffix(".log.2")
        if plain.exists():
            packed = self.directory / "pack.tmp"
            with plain.open("rb") as source, gzip.open(packed, "wb") as target:
                shutil.copyfileobj(source, target)
            packed.rename(self.directory / f"app.log.{self.generation}.gz")
            plain.unlink()


class CopyTruncate(Writer):
    """The file is copied, then emptied; the writer rests meanwhile, or lines would be lost."""

    def rotate(self) -> None:
        shutil.copyfile(self.path, self.directory / f"app.log.{self.generation}")
        os.truncate(self.path, 0)
        self.next_generation()


KINDS: dict[str, type[Writer]] = {
    "rename": Rename,
    "create": Create,
    "rename-away": RenameAway,
    "delete": Delete,
    "symlink": Symlink,
    "copytruncate": CopyTruncate,
    "compress": Compress,
}
