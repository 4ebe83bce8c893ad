"""Templates for keys and headers: ``{host}:{path}``, compiled once, bound to each file.

A template is parsed once. Binding it to a file fills in what is the same for the whole file, so a
record costs nothing, or one formatting of its offset.
"""

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

PER_FILE = frozenset({"host", "path", "name", "inode"})
"""The host name; the file's path, its last part, and its inode number."""
PER_RECORD = frozenset({"offset"})
"""Where the record begins in its file, in bytes."""

_ENVIRONMENT = "env."


@dataclass(frozen=True, slots=True)
class Template:
    """Text with variables in braces; ``{{`` and ``}}`` are literal braces.

    ``parts`` are literal texts, each with the variable that follows it, "" for none.
    """

    text: str
    parts: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a template; raises ValueError, which says what is wrong."""
        parts = []
        for literal, name, form, conversion in string.Formatter().parse(text):
            if form or conversion:
                raise ValueError("a variable is only a name, such as {path}")
            if name is not None and not _is_variable(name):
                known = ", ".join(sorted(PER_FILE | PER_RECORD))
                raise ValueError(f"{{{name}}} is none of {known} and env.NAME")
            parts.append((literal, name or ""))
        return cls(text, tuple(parts))

    @property
    def environment(self) -> frozenset[str]:
        """The names of the environment variables that it needs."""
        return frozenset(
            name.removeprefix(_ENVIRONMENT) for _, name in self.parts if _is_environment(name)
        )

    def bind(self, values: Mapping[str, bytes | str | int]) -> "Bound":
        """Fill in the variables of a file: ``PER_FILE``, and each ``env.NAME`` that is needed.

        Raises KeyError for those missing in ``values``.
        """
        form, offsets = b"", 0
        for literal, name in self.parts:
            form += _escaped(literal)
            if name in PER_RECORD:
                form += b"%d"
                offsets += 1
            elif name:
                form += _escaped(values[name])
        return Bound(form, offsets)

    def __str__(self) -> str:
        return self.text


class Bound:
    """A template that is bound to one file."""

    __slots__ = ("_form", "_offsets", "constant")

    def __init__(self, form: bytes, offsets: int) -> None:
        self._form = form
        self._offsets = offsets
        self.constant: bytes | None = None if offsets else form % ()
        """The text of every record; None: it depends on the offset."""

    def render(self, offset: int) -> bytes:
        """Return the text of the record at ``offset``."""
        if self.constant is not None:
            return self.constant
        return self._form % ((offset,) * self._offsets)

    def render_all(self, offsets: Iterable[int]) -> list[bytes]:
        """Return the texts of the records at ``offsets``."""
        constant, form = self.constant, self._form
        if constant is not None:
            return [constant for _ in offsets]
        if self._offsets == 1:
            return [form % offset for offset in offsets]
        return [self.render(offset) for offset in offsets]


def _is_variable(name: str) -> bool:
    return name in PER_FILE or name in PER_RECORD or _is_environment(name)


def _is_environment(name: str) -> bool:
    return name.startswith(_ENVIRONMENT) and name != _ENVIRONMENT


def _escaped(value: bytes | str | int) -> bytes:
    if not isinstance(value, bytes):
        value = str(value).encode("utf-8", "surrogateescape")
    return value.replace(b"%", b"%%")
