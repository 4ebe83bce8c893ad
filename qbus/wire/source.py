"""The source of a generated function, written line by line."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from struct import Struct as Format
from typing import Any, Final


class Source:
    """A function under construction, and the values that it refers to."""

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
        """Add ``head:``; the lines that follow stand inside it."""
        self.line(f"{head}:")
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, stem: str) -> str:
        """A local name that is not taken."""
        self._names += 1
        return f"{stem}{self._names}"

    def bind(self, name: str, value: Any) -> str:
        """Let the function refer to ``value`` as ``name``."""
        assert self._values.setdefault(name, value) == value
        return name

    def compile(self, name: str, title: str) -> Any:
        """The function called ``name``; tracebacks show ``title``."""
        code = compile("\n".join(self._lines), f"<{title}>", "exec")
        exec(code, self._values)  # noqa: S102 - made from our own declarations
        return self._values[name]


FEW: Final = 8
"""Arrays of fewer numbers than this, as the replicas of a partition, have formats of their own."""


@cache
def few(letter: str) -> list[Format]:
    """The formats of 0, 1, 2 ... of the same number."""
    return [big_endian(f"{count}{letter}") for count in range(FEW)]


@cache
def big_endian(letters: str) -> Format:
    """The ``struct`` format of a run of fixed-width values."""
    return Format(">" + letters)


def named(letters: str) -> str:
    """The letters of a format, as part of a name."""
    return letters.replace("?", "z")
