"""Which file it is, whatever it is called now.

A file is its device and inode, as long as it lives. An inode is used again for another file, and a
truncated file is another one with the same inode: the fingerprint of its head tells them apart.
"""

import os
from hashlib import blake2b
from typing import NamedTuple, Self


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
