"""Source code of a generated function, written line by line."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from struct import Struct as Format
from typing import Any, Final


class Source:
    """A function under construction, and the values that its code refers to."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        self._values = dict(known)
        self._names = 0
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        """Add a line."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add ``head:``; lines added in the context are inside the block."""
        self.line(f"{head}:")
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, stem: str) -> str:
        """Return a new local name."""
        self._names += 1
        return f"{stem}{self._names}"

    def bind(self, name: str, value: Any) -> str:
        """Make ``value`` known to the function as ``name``; return the name."""
        assert self._values.setdefault(name, value) == value
        return name

    def compile(self, name: str, title: str) -> Any:
        """Return the function called ``name``; tracebacks show ``title``."""
        code = compile("\n".join(self._lines), f"<{title}>", "exec")
        exec(code, self._values)  # noqa: S102 - made from our own declarations
        return self._values[name]


FEW: Final = 8
"""Arrays of fewer numbers (for example the replicas of a partition) have precompiled formats."""


@cache
def few(letter: str) -> list[Format]:
    """Return the formats of 0, 1, 2 ... numbers of the same type."""
    return [big_endian(f"{count}{letter}") for count in range(FEW)]


@cache
def big_endian(letters: str) -> Format:
    """Return the ``struct`` format of adjacent values of fixed width."""
    return Format(">" + letters)


def named(letters: str) -> str:
    """Return the letters of a format as part of a name."""
    return letters.replace("?", "z")
