"""Which file it is, whatever its name, and how far it was delivered to one topic.

A file is identified by its device and inode while it exists. An inode is reused for other files,
and a truncated file is another one with the same inode: the fingerprint of its head tells them
apart.
"""

import json
import os
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, Self

_FORMERS = 8


class Identity(NamedTuple):
    """The place of a file in its file system."""

    device: int
    inode: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Self:
        """The identity of the file that was looked at."""
        return cls(stat.st_dev, stat.st_ino)


class Fingerprint(NamedTuple):
    """The hash of a file's first ``length`` bytes."""

    length: int
    digest: str

    @classmethod
    def of(cls, head: bytes) -> Self:
        """The fingerprint of what begins with ``head`` and of which no more is known."""
        return cls(len(head), blake2b(head, digest_size=8).hexdigest())

    def matches(self, head: bytes) -> bool:
        """Whether what begins with ``head`` may be the same file, grown since."""
        return len(head) >= self.length and Fingerprint.of(head[: self.length]) == self


NOTHING = Fingerprint.of(b"")
"""Of a file of which nothing is known: all are like it."""


@dataclass(slots=True)
class Former:
    """What was in a file before it was emptied, and how far that was delivered."""

    fingerprint: Fingerprint
    offset: int
    tail: tuple[int, int]


class Position:
    """What is remembered of a file.

    offset: everything before it is acknowledged, in bytes (of a gzip file: of what is in it).
    tail: length and CRC-32 of the last bytes before it, to know a copy of the file by.
    partition: where its records go, whatever becomes of the topic; -1: not chosen yet.
    formers: what was in the file before it was emptied, the latest last.
    is_done: nothing will come any more. seen_at: when it was last there, ms since the epoch.
    """

    __slots__ = (
        "fingerprint",
        "formers",
        "identity",
        "is_done",
        "number",
        "offset",
        "partition",
        "path",
        "seen_at",
        "tail",
        "topic",
    )

    def __init__(self, identity: Identity, topic: str, path: str) -> None:
        self.number = -1
        self.identity = identity
        self.topic = topic
        self.path = path
        self.fingerprint: Fingerprint = NOTHING
        self.partition = -1
        self.offset = 0
        self.tail = (0, 0)
        self.formers: list[Former] = []
        self.is_done = False
        self.seen_at = 0

    def restart(self, fingerprint: Fingerprint = NOTHING) -> None:
        """It is another file now, or emptied: begin anew."""
        if self.fingerprint.length:
            former = Former(self.fingerprint, self.offset, self.tail)
            self.formers = [*self.formers, former][-_FORMERS:]
        self.offset = 0
        self.tail = (0, 0)
        self.is_done = False
        self.fingerprint = fingerprint

    def to_json(self) -> bytes:
        """One line that says it all."""
        document: dict[str, Any] = {
            "number": self.number,
            "device": self.identity.device,
            "inode": self.identity.inode,
            "topic": self.topic,
            "path": self.path,
            "head": self.fingerprint,
            "partition": self.partition,
            "offset": self.offset,
            "tail": self.tail,
            "formers": [[one.fingerprint, one.offset, one.tail] for one in self.formers],
            "done": self.is_done,
            "seen": self.seen_at,
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """The reverse; raises KeyError, TypeError or ValueError for anything else."""
        identity = Identity(int(document["device"]), int(document["inode"]))
        position = cls(identity, str(document["topic"]), str(document["path"]))
        length, digest = document["head"]
        position.fingerprint = Fingerprint(int(length), str(digest))
        position.number = int(document["number"])
        position.partition = int(document["partition"])
        position.offset = int(document["offset"])
        size, crc = document["tail"]
        position.tail = (int(size), int(crc))
        for (length, digest), offset, (size, crc) in document["formers"]:
            fingerprint = Fingerprint(int(length), str(digest))
            position.formers.append(Former(fingerprint, int(offset), (int(size), int(crc))))
        position.is_done = bool(document["done"])
        position.seen_at = int(document["seen"])
        return position
