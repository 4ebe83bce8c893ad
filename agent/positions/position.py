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
    """The device and inode of a file."""

    device: int
    inode: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Self:
        """Return the identity of a file by its stat result."""
        return cls(stat.st_dev, stat.st_ino)


class Fingerprint(NamedTuple):
    """The hash of a file's first ``length`` bytes."""

    length: int
    digest: str

    @classmethod
    def of(cls, head: bytes) -> Self:
        """Return the fingerprint of a file of which ``head`` is known."""
        return cls(len(head), blake2b(head, digest_size=8).hexdigest())

    def matches(self, head: bytes) -> bool:
        """Whether a file that begins with ``head`` may be the same one, grown since."""
        return len(head) >= self.length and Fingerprint.of(head[: self.length]) == self


NOTHING = Fingerprint.of(b"")
"""The fingerprint of an unknown file: every file matches it."""


@dataclass(slots=True)
class Former:
    """The content of a file before a truncation, and how far it was delivered."""

    fingerprint: Fingerprint
    offset: int
    tail: tuple[int, int]


class Position:
    """The checkpoint of a file.

    offset: everything before it is acknowledged, in bytes (of a gzip file: unpacked bytes).
    tail: length and CRC-32 of the last bytes before it, by which a copy of the file is recognized.
    partition: the partition of its records, which never changes; -1: not chosen yet.
    formers: its contents before truncations, the latest last. is_done: it is shipped whole and
    will not grow. real: where the file lies, if it is not at ``path``: a link leads there, or it
    was renamed while no agent ran; else empty. seen_at: when it last existed, in milliseconds since
    the Unix epoch.
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
        "real",
        "seen_at",
        "tail",
        "topic",
    )

    def __init__(self, identity: Identity, topic: str, path: str) -> None:
        self.number = -1
        self.identity = identity
        self.topic = topic
        self.path = path
        self.real = ""
        self.fingerprint: Fingerprint = NOTHING
        self.partition = -1
        self.offset = 0
        self.tail = (0, 0)
        self.formers: list[Former] = []
        self.is_done = False
        self.seen_at = 0

    def continue_from(self, former: "Position") -> None:
        """Begin where another topic stopped to get the same file."""
        self.fingerprint = former.fingerprint
        self.offset, self.tail = former.offset, former.tail
        self.formers = list(former.formers)
        self.is_done = former.is_done

    @property
    def real_path(self) -> str:
        """Where the file lies, whatever links lead to it."""
        return self.real or self.path

    def restart(self, fingerprint: Fingerprint = NOTHING) -> None:
        """Start again: it is another file now, or was truncated."""
        if self.fingerprint.length:
            former = Former(self.fingerprint, self.offset, self.tail)
            self.formers = [*self.formers, former][-_FORMERS:]
        self.offset = 0
        self.tail = (0, 0)
        self.is_done = False
        self.fingerprint = fingerprint

    def to_json(self) -> bytes:
        """Return the whole position as one line of JSON."""
        document: dict[str, Any] = {
            "number": self.number,
            "device": self.identity.device,
            "inode": self.identity.inode,
            "topic": self.topic,
            "path": self.path,
            "real": self.real,
            "head": self.fingerprint,
            "partition": self.partition,
            "offset": self.offset,
            "tail": self.tail,
            "formers": [
                [former.fingerprint, former.offset, former.tail] for former in self.formers
            ],
            "done": self.is_done,
            "seen": self.seen_at,
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Return the position in a document; raises KeyError, TypeError or ValueError."""
        identity = Identity(int(document["device"]), int(document["inode"]))
        position = cls(identity, str(document["topic"]), str(document["path"]))
        length, digest = document["head"]
        position.fingerprint = Fingerprint(int(length), str(digest))
        position.real = str(document.get("real", ""))
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
