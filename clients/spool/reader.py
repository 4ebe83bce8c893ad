"""Reading a spool, in order to deliver it; one process at a time."""

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from qbus.records import HEADER_SIZE, BatchHeader, CorruptBatch, check_crc, read_header
from qbus.service.files import replace_file
from qbus.service.lock import is_locked

from .layout import ACKNOWLEDGED, LOCK, UNFINISHED, QueueName, parse_queue, parse_segment

OnDamage = Callable[[Path, CorruptBatch], object]
"""Called with the segment and the damage; raises to end the reading."""


class Spool:
    """All queues of a spool."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)

    def queues(self) -> list["SpoolQueue"]:
        """Return all queues, those of earlier writers first. Raises OSError."""
        return [
            SpoolQueue(path, name)
            for writer in self._writers()
            for path in sorted(writer.iterdir())
            if path.is_dir() and (name := parse_queue(path.name)) is not None
        ]

    def clean(self) -> None:
        """Remove what dead writers left and nobody needs. Raises OSError."""
        for writer in self._writers():
            queues = [path for path in writer.iterdir() if path.is_dir()]
            if not queues and not is_locked(writer / LOCK):
                shutil.rmtree(writer)

    def _writers(self) -> list[Path]:
        if not self._directory.exists():
            return []
        found = (path for path in self._directory.iterdir() if path.is_dir())
        return sorted(path for path in found if not path.name.startswith(UNFINISHED))


class SpoolQueue:
    """What one writer kept for one partition, in order."""

    def __init__(self, directory: Path, name: QueueName) -> None:
        self.name = name
        self.directory = directory

    def size(self) -> int:
        """Return the size of its files in bytes, including delivered batches. Raises OSError."""
        return sum(path.stat().st_size for _, path in self._segments())

    @property
    def acknowledged(self) -> int:
        """The offset of the first record not delivered. Raises OSError."""
        try:
            return int((self.directory / ACKNOWLEDGED).read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def batches(self, on_damage: OnDamage | None = None) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield the batches not delivered, except a partial one that is being written.

        Raises OSError. Raises :class:`~qbus.records.CorruptBatch` at a damaged batch; with
        ``on_damage``, calls that instead and continues with the next whole batch.
        """
        start = self.acknowledged
        segments = self._segments()
        ends = [*(first for first, _ in segments[1:]), None]
        for (first, path), end in zip(segments, ends, strict=True):
            if end is not None and end <= start:
                continue
            for header, batch in _whole_batches(
                path, first, on_damage or _refuse, is_last=end is None
            ):
                if header.last_offset >= start:
                    yield header, batch

    def acknowledge(self, end_offset: int) -> None:
        """Mark everything before ``end_offset`` as delivered, durably; delete what is not needed.

        Raises OSError.
        """
        replace_file(self.directory / ACKNOWLEDGED, b"%d" % end_offset)
        segments = self._segments()
        for (_, path), (next_offset, _) in pairwise(segments):
            if next_offset <= end_offset:
                path.unlink()

    def remove_if_done(self, on_damage: OnDamage | None = None) -> bool:
        """Remove the queue if its writer is dead and everything is delivered; return whether it
        was.

        Takes and raises what :meth:`batches` does.
        """
        if (
            is_locked(self.directory.parent / LOCK)
            or next(self.batches(on_damage), None) is not None
        ):
            return False
        shutil.rmtree(self.directory)
        return True

    def _segments(self) -> list[tuple[int, Path]]:
        found = [(parse_segment(path.name), path) for path in self.directory.iterdir()]
        return sorted((first, path) for first, path in found if first is not None)


def _refuse(_: Path, damage: CorruptBatch) -> None:
    raise damage


def _whole_batches(
    path: Path, first_offset: int, on_damage: OnDamage, *, is_last: bool
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield the batches of a segment, in the last one up to a partial batch.

    Each batch is on stable storage before the next begins, so anything else is damage. Offsets are
    dense, so they are known even where damage, which no checksum detects there, changed them.
    """
    offset = first_offset
    size = path.stat().st_size
    with path.open("rb") as file:
        while head := file.read(HEADER_SIZE):
            place = file.tell() - len(head)
            try:
                header = read_header(head)
                batch = head + file.read(header.size - HEADER_SIZE)
                check_crc(batch, header)
            except CorruptBatch as error:
                following = next_batch(path, place + 1, size)
                if is_last and file.tell() >= size and following >= size:
                    return
                damage = CorruptBatch(f"{path}, at byte {place}: {error}")
                damage.__cause__ = error
                on_damage(path, damage)
                file.seek(following)
                offset = -1
                continue
            if offset >= 0:
                header = header._replace(base_offset=offset)
            yield header, batch
            offset = header.last_offset + 1


_MAGIC_AT = 16
_MAGIC = b"\x02"
_ATTRIBUTES = 0x0F
_MOST_RECORDS = 1 << 48


def next_batch(path: Path, start: int, end: int) -> int:
    """Return where the next whole batch begins, from ``start`` on; ``end`` if none does.

    Anything may look like a header: the checksum of the batch decides. Raises OSError.
    """
    with path.open("rb") as file:
        data = file.read(end)
    place = data.find(_MAGIC, start + _MAGIC_AT) - _MAGIC_AT
    while start <= place <= len(data) - HEADER_SIZE:
        if _is_whole(data, place):
            return place
        place = data.find(_MAGIC, place + _MAGIC_AT + 1) - _MAGIC_AT
    return end


def _is_whole(data: bytes, place: int) -> bool:
    try:
        header = read_header(data, place)
        if not _is_likely(header) or place + header.size > len(data):
            return False
        check_crc(data, header, place)
    except CorruptBatch:
        return False
    return True


def _is_likely(header: BatchHeader) -> bool:
    """Whether a header is plausible: a cheap check before the checksum."""
    return (
        0 <= header.base_offset < _MOST_RECORDS
        and 0 <= header.attributes <= _ATTRIBUTES
        and 0 < header.records_count == header.last_offset_delta + 1
    )
