"""The encodings of lines, and their conversion to UTF-8."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
_OPEN = {"utf-16": "utf-16-le", "utf-32": "utf-32-le", "utf-8-sig": "utf-8"}
"""Encodings with a byte order mark, and what each is without a mark."""


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
        mark = 0
        if name in _OPEN:
            found = (pair for pair in _MARKS if head.startswith(pair[0]))
            for bom, actual in found:
                if actual.startswith(_OPEN[name][:6].rstrip("-")):
                    name, mark = actual, len(bom)
                    break
            else:
                name = _OPEN[name]
        return cls(name, len("\n".encode(name)), mark)

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
