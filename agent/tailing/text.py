"""What lines are encoded in, and how they become UTF-8."""

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
"""Encodings whose files begin with a mark that tells more; what they are without it."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """``name`` as Python knows it; empty: bytes stay what they are.

    ``width``: how many bytes a newline takes. ``mark``: bytes at the file's start that are no text.
    """

    name: str = ""
    width: int = 1
    mark: int = 0

    @classmethod
    def of(cls, name: str, head: bytes = b"") -> Self:
        """The encoding of a file that begins with ``head``."""
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
        """What ends a line."""
        return "\n".encode(self.name) if self.name else b"\n"

    def cut(self, data: bytes) -> tuple[list[bytes], int, bytes]:
        """Whole lines without their newlines, how much they take, and what is behind them."""
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
        """The lines, those that ended with CR LF without the CR. ``data``: where they are from."""
        if b"\r" not in data:
            return lines
        end = "\r".encode(self.name) if self.name else b"\r"
        return [line.removesuffix(end) for line in lines]

    def to_utf8(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """The lines as UTF-8, with U+FFFD in place of what is no text."""
        if not self.name:
            return lines
        return [line.decode(self.name, "replace").encode() for line in lines]

    def from_utf8(self, text: bytes) -> bytes:
        """The reverse, as far as it goes."""
        return text.decode().encode(self.name, "replace") if self.name else text


AS_IS = Encoding()
"""Bytes stay what they are."""
