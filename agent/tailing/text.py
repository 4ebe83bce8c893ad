"""The encodings of lines, and their conversion to UTF-8."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

_MARKS = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}
"""Byte order marks, which files of these encodings may begin with."""
_OPEN = {
    "utf-16": ("utf-16-le", "utf-16-be"),
    "utf-32": ("utf-32-le", "utf-32-be"),
    "utf-8-sig": ("utf-8",),
}
"""Encodings whose mark tells which one it is; the first one without a mark."""
MARK_BYTES = 4
"""The longest byte order mark."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """An encoding; ``name`` is Python's, empty for bytes that stay unchanged.

    ``width``: the bytes of a newline. ``mark``: the bytes of a byte order mark at the file's start.
    """

    name: str = ""
    width: int = 1
    mark: int = 0

    @classmethod
    def of(cls, name: str, head: bytes = b"") -> Self:
        """Return the encoding of a file that begins with ``head``."""
        if not name:
            return cls()
        names = _OPEN.get(name, (name,))
        for one in names:
            mark = _MARKS.get(one)
            if mark is not None and head.startswith(mark):
                return cls(one, len("\n".encode(one)), len(mark))
        return cls(names[0], len("\n".encode(names[0])))

    @staticmethod
    def may_have_mark(name: str) -> bool:
        """Whether files of the encoding may begin with a byte order mark."""
        return name in _OPEN or name in _MARKS

    @property
    def newline(self) -> bytes:
        """The bytes that end a line."""
        return "\n".encode(self.name) if self.name else b"\n"

    def whole(self, size: int) -> int:
        """Return how many of ``size`` bytes are of whole units, which are as long as a newline."""
        return size // self.width * self.width

    def cut(self, data: bytes) -> tuple[list[bytes], int, bytes]:
        """Return whole lines without newlines, the bytes they take, and the rest."""
        newline = self.newline
        lines: list[bytes] = []
        start = at = 0
        while (at := data.find(newline, at)) >= 0:
            if at % self.width:
                at += 1
                continue
            lines.append(data[start:at])
            at += self.width
            start = at
        return lines, start, data[start:]

    def without_returns(self, lines: list[bytes], data: bytes) -> list[bytes]:
        """Return the lines of ``data`` without the CR of a CR LF."""
        if b"\r" not in data:
            return lines
        end = "\r".encode(self.name) if self.name else b"\r"
        return [line.removesuffix(end) for line in lines]

    def to_utf8(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Return the lines as UTF-8, with U+FFFD in place of invalid bytes."""
        if not self.name:
            return lines
        return [line.decode(self.name, "replace").encode() for line in lines]

    def from_utf8(self, text: bytes) -> bytes:
        """Return UTF-8 text in this encoding, with ``?`` for what it cannot hold."""
        return text.decode().encode(self.name, "replace") if self.name else text


AS_IS = Encoding()
"""Bytes stay unchanged."""
