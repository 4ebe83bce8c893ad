"""The files of an archive at one time, and the offsets that they account for.

A file is a line of JSON in the format of Spark's file sink (``SinkFileStatus``), so that readers
on Spark find the files. The field ``qbus`` is an addition that Spark ignores.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

Intervals = tuple[tuple[int, int], ...]
"""Sorted, disjoint intervals, each from its first number to before its second."""

Coverage = Mapping[tuple[str, int], Intervals]
"""The archived offsets of each topic and partition."""


def union(*parts: Iterable[tuple[int, int]]) -> Intervals:
    """The union of the intervals."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(interval for part in parts for interval in part):
        if begin >= end:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return tuple(found)


def common(left: Intervals, right: Intervals) -> Intervals:
    """The intersection of the intervals."""
    parts = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return union(parts)


_AS_THEY_ARE = "/:@!$&'()*+,;=~"
"""Characters that are not escaped in URLs of files, beside letters and digits."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A Parquet file of one topic and hour.

    path: absolute, as Hadoop writes it. size: in bytes. modified: in milliseconds since the epoch.
    records: the number of records of each partition. covers: the offsets of each partition that
    count as archived by this file, including offsets without a record.
    """

    path: str
    size: int
    modified: int
    topic: str
    topic_id: str
    records: Mapping[int, int]
    covers: Mapping[int, Intervals]

    @property
    def directory(self) -> str:
        """The directory of the file."""
        return self.path.rpartition("/")[0]

    def to_line(self) -> str:
        """The file as a line of the log."""
        own = {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "records": self.records,
            "covers": self.covers,
        }
        status = {
            "path": quote(self.path, safe=_AS_THEY_ARE),
            "size": self.size,
            "isDir": False,
            "modificationTime": self.modified,
            "blockReplication": 1,
            "blockSize": max(1, self.size),
            "action": "add",
            "qbus": own,
        }
        return json.dumps(status, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> "ArchivedFile":
        """Parse a line; raises ValueError, KeyError or TypeError for a line of another writer."""
        status = json.loads(line)
        own = status["qbus"]
        return cls(
            path=unquote(status["path"]),
            size=int(status["size"]),
            modified=int(status["modificationTime"]),
            topic=own["topic"],
            topic_id=own["topic_id"],
            records={int(index): int(count) for index, count in own["records"].items()},
            covers={
                int(index): tuple((int(begin), int(end)) for begin, end in intervals)
                for index, intervals in own["covers"].items()
            },
        )


@dataclass(frozen=True)
class Snapshot:
    """The files after the commit ``version`` (-1: none), and the offsets they account for."""

    version: int = -1
    files: Mapping[str, ArchivedFile] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=dict)

    def changed(self, added: Iterable[ArchivedFile], removed: Iterable[str] = ()) -> "Snapshot":
        """The next snapshot; files that replace others account for the offsets of these."""
        files = dict(self.files)
        for path in removed:
            del files[path]
        added = list(added)
        files.update((file.path, file) for file in added)
        more = {
            key: union(self.coverage.get(key, ()), intervals)
            for key, intervals in covered(added).items()
        }
        return Snapshot(self.version + 1, files, {**self.coverage, **more})

    def topic_ids(self) -> dict[str, str]:
        """The id of each topic."""
        return {file.topic: file.topic_id for file in self.files.values()}


def covered(files: Iterable[ArchivedFile]) -> Coverage:
    """The offsets of each topic and partition that files account for."""
    parts: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for file in files:
        for partition, intervals in file.covers.items():
            parts.setdefault((file.topic, partition), set()).update(intervals)
    return {key: union(intervals) for key, intervals in parts.items()}
