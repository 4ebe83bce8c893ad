"""Lines that are written as programs write them: ``python -m perf.agent_lines JSON``.

Numbers each record, and keeps when its writing ended, by the clock that all processes share.
"""

import json
import os
import sys
import time
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path

TICK = 0.001
ROTATION_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How records come into being.

    files: how many there are, of which ``written`` are written in turn. rate: records per second.
    size: bytes of a record. lines: of which a record consists. is_halved: each is written by two
    writes, a pause apart. is_reopened: the file is opened and closed for each record.
    is_rotated: files are renamed, and begun anew under their names.
    """

    name: str
    rate: int
    files: int = 1
    written: int = 0
    size: int = 100
    lines: int = 1
    is_halved: bool = False
    is_reopened: bool = False
    is_rotated: bool = False


class Writer:
    """Writes records to the files of a directory."""

    def __init__(self, logs: Path, form: Form) -> None:
        self._form = form
        self._paths = [logs / f"{number:04d}.log" for number in range(form.written or form.files)]
        self._files = [] if form.is_reopened else [self._open(path) for path in self._paths]
        self._generations = 0

    def run(self, count: int) -> "array[float]":
        """Write ``count`` records; return when the last byte of each was written."""
        ends = array("d", bytes(8 * count))
        written, start = 0, time.perf_counter()
        rotate_at = start + ROTATION_S
        while written < count:
            now = time.perf_counter()
            if self._form.is_rotated and now >= rotate_at:
                self._rotate()
                rotate_at += ROTATION_S
            due = min(count, int((now - start) * self._form.rate) + 1)
            while written < due:
                self._write(written, record_of(written, self._form))
                ends[written] = time.perf_counter()
                written += 1
            time.sleep(max(TICK, 1 / self._form.rate))
        return ends

    def _write(self, index: int, record: bytes) -> None:
        place = index % len(self._paths)
        file = self._open(self._paths[place]) if self._form.is_reopened else self._files[place]
        if self._form.is_halved:
            os.write(file, record[: len(record) // 2])
            record = record[len(record) // 2 :]
            time.sleep(TICK)
        os.write(file, record)
        if self._form.is_reopened:
            os.close(file)

    def _rotate(self) -> None:
        self._generations += 1
        for place, path in enumerate(self._paths):
            path.rename(f"{path}.{self._generations}")
            os.close(self._files[place])
            self._files[place] = self._open(path)

    @staticmethod
    def _open(path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def record_of(index: int, form: Form) -> bytes:
    """A record, with its newline."""
    head = b"%08d a record of a log " % index
    body = head + b"x" * max(0, form.size - len(head) - 1)
    return body + b"\n" + b"  and a line of the same record\n" * (form.lines - 1)


def command(logs: Path, form: Form, count: int, ends: Path) -> list[str]:
    """Return the command that writes ``count`` records, and their times to the file ``ends``."""
    document = {"logs": str(logs), "form": asdict(form), "count": count, "ends": str(ends)}
    return [sys.executable, "-m", "perf.agent_lines", json.dumps(document)]


def main(document: str) -> None:
    """Do what :func:`command` says."""
    work = json.loads(document)
    ends = Writer(Path(work["logs"]), Form(**work["form"])).run(work["count"])
    Path(work["ends"]).write_bytes(ends.tobytes())


if __name__ == "__main__":
    main(sys.argv[1])
