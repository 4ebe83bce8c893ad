"""Finding and setting aside the damage in a data directory."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from qbus.broker.log import OsFiles
from qbus.broker.log.checkpoints import RECOVERY_POINTS, BadCheckpoint, read_offsets
from qbus.broker.log.data_directory import LOCK
from qbus.broker.log.names import parse_partition
from qbus.broker.log.salvage import SalvageError, SegmentDamage, find_damage, salvage, saved_path
from qbus.cli.failures import Failure, Misuse
from qbus.cli.output import Document, Remark


class Salvage:
    """The salvage of partitions in one data directory, which no broker uses meanwhile."""

    def __init__(self, data_dir: Path, saved: Path, *, execute: bool) -> None:
        self._files = OsFiles()
        self._data_dir = data_dir
        self._saved = saved
        self._execute = execute

    def run(self, names: Sequence[str]) -> list[Document]:
        """The damage of the named partitions, or of all; set aside if that is wanted.

        Raises Misuse for a partition that is not there, Failure if the directory is in use, or
        belongs to another user: files that this one makes would be of no use to the broker.
        """
        owner = self._data_dir.stat().st_uid
        if owner != os.geteuid():
            raise Failure(f"{self._data_dir} belongs to user {owner}: run this as that user")
        lock = self._files.lock(f"{self._data_dir}/{LOCK}")
        if lock is None:
            raise Failure(f"{self._data_dir} is in use: stop its broker first")
        try:
            return [one for name in self._chosen(names) for one in self._partition(name)]
        except (OSError, BadCheckpoint) as error:
            raise Failure(f"{self._data_dir}: {error}") from error
        finally:
            del lock

    def _chosen(self, names: Sequence[str]) -> list[str]:
        there = sorted(one.name for one in self._data_dir.iterdir() if parse_partition(one.name))
        for name in names:
            if name not in there:
                raise Misuse(f"{name} is no partition in {self._data_dir}")
        return list(names) or there

    def _partition(self, name: str) -> Iterator[Document]:
        directory = f"{self._data_dir}/{name}"
        try:
            found = find_damage(self._files, directory, self._recovery_point(name))
            documents = list(self._documents(name, found))
            if self._execute and found:
                salvage(self._files, directory, found, f"{self._saved}/{name}")
        except SalvageError as error:
            raise Failure(f"{directory}: {error}") from error
        yield from documents

    def _recovery_point(self, name: str) -> int:
        points = read_offsets(self._files, f"{self._data_dir}/{RECOVERY_POINTS}")
        partition = parse_partition(name)
        return 0 if partition is None else points.get(partition, 0)

    def _documents(self, name: str, found: Sequence[SegmentDamage]) -> Iterator[Document]:
        for segment, damage in found:
            for one in damage:
                bad = saved_path(self._files, f"{self._saved}/{name}", one.start.offset)
                yield {
                    "partition": name,
                    "first_offset": one.start.offset,
                    "last_offset": one.end.offset - 1,
                    "file": segment.path,
                    "position": one.start.position,
                    "size": one.size,
                    "problem": one.problem,
                    "saved_to": bad if one.size else None,
                    "salvaged": self._execute,
                }


def shown(documents: Sequence[Document], *, execute: bool) -> str:
    """A line for each damaged range, and what to do next."""
    if not documents:
        return Remark("No damage was found.")
    return "\n".join((*map(_line, documents), _summary(documents, execute=execute)))


def _line(entry: Document) -> str:
    first, last = entry["first_offset"], entry["last_offset"]
    offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
    where = f"{entry['file']} at {entry['position']}, {entry['size']} B"
    saved = f"\n  saved to {entry['saved_to']}" if entry["saved_to"] and entry["salvaged"] else ""
    return f"{entry['partition']}: {offsets}, {where}: {entry['problem']}{saved}"


def _summary(documents: Sequence[Document], *, execute: bool) -> str:
    offsets = sum(one["last_offset"] - one["first_offset"] + 1 for one in documents)
    places = f"{len(documents)} damaged place{'s' * (len(documents) != 1)} of {offsets} offsets"
    if execute:
        return f"{places} set aside; an empty batch stands for each."
    return (
        f"{places}. Nothing was changed: --execute sets them aside. If another broker has a"
        " replica, start this one instead: it fetches what it lost."
    )
