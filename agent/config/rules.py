"""What fields may hold: from TOML's values to Python's, or a refusal that says what is allowed."""

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from qbus.errors import ApiError, ConfigError
from qbus.names import check_topic_name

from .template import Template

_SHOWN = 200


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Rule:
    """``read`` takes a value of TOML, and the field's place for those that hold fields themselves.

    It raises ValueError, with what is wrong where that is more than not being ``allowed``.
    ``write`` is its reverse. ``nested`` is the class of tables.
    """

    allowed: str
    read: Callable[[Any, str], Any]
    write: Callable[[Any], Any] = _same
    nested: type | None = None

    def parse(self, place: str, raw: object) -> Any:
        """The value that ``raw`` means; raises ConfigError with place, value, what is allowed."""
        try:
            return self.read(raw, place)
        except ValueError as error:
            why = f"expected {self.allowed}" + (f": {error}" if str(error) else "")
            raise ConfigError(f"{place} = {_show(raw)}: {why}") from None


def _show(raw: object) -> str:
    text = repr(raw) if not isinstance(raw, bool) else str(raw).lower()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _plain(allowed: str, read: Callable[[Any], Any], write: Callable[[Any], Any] = _same) -> Rule:
    return Rule(allowed, lambda raw, _: read(raw), write)


def _text(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError  # noqa: TRY004 - one exception for all that is not allowed
    if "\0" in raw:
        raise ValueError("it holds a NUL character")
    return raw


def boolean() -> Rule:
    """True or false, and nothing that might be taken for them."""

    def read(raw: Any) -> bool:
        if not isinstance(raw, bool):
            raise ValueError  # noqa: TRY004
        return raw

    return _plain("true or false", read)


def whole(at_least: int, at_most: int) -> Rule:
    """A whole number within bounds."""

    def read(raw: Any) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or not at_least <= raw <= at_most:
            raise ValueError
        return raw

    return _plain(f"a whole number from {at_least} to {at_most}", read)


def text(at_least: int, at_most: int) -> Rule:
    """Text of so many characters."""

    def read(raw: Any) -> str:
        if not at_least <= len(_text(raw)) <= at_most:
            raise ValueError
        return _text(raw)

    return _plain(f"text of {at_least} to {at_most} characters", read)


def choice(*names: str) -> Rule:
    """One of a few names."""

    def read(raw: Any) -> str:
        if _text(raw) not in names:
            raise ValueError
        return _text(raw)

    return _plain("one of " + ", ".join(names), read)


def topic() -> Rule:
    """A name that a topic may have."""

    def read(raw: Any) -> str:
        try:
            check_topic_name(_text(raw))
        except ApiError as error:
            raise ValueError(error) from None
        return _text(raw)

    return _plain("the name of a topic", read)


def bootstrap() -> Rule:
    """Where the cluster is."""

    def read(raw: Any) -> str:
        from qbus.clients.bootstrap import parse  # noqa: PLC0415 - loads the wire protocol

        try:
            parse(_text(raw))
        except ConfigError as error:
            raise ValueError(error) from None
        return _text(raw).strip()

    return _plain("host:port,... or zk://host:port,.../chroot", read)


def _absolute(raw: object) -> str:
    if not PurePath(_text(raw)).is_absolute():
        raise ValueError(f"{raw!r} does not begin with /")
    return _text(raw)


def path() -> Rule:
    """An absolute path."""
    return _plain("an absolute path", _absolute)


def paths() -> Rule:
    """One or more absolute paths or globs."""

    def read(raw: Any) -> tuple[str, ...]:
        found = tuple(map(_absolute, _list(raw)))
        if not found:
            raise ValueError
        return found

    return _plain("a list of one or more absolute paths or globs", read, list)


def globs() -> Rule:
    """Globs of paths or names."""

    def read(raw: Any) -> tuple[str, ...]:
        if not all(map(_text, _list(raw))):
            raise ValueError("one of them is empty")
        return tuple(raw)

    return _plain("a list of globs", read, list)


def encoding() -> Rule:
    """An encoding of text that Python knows."""

    def read(raw: Any) -> str:
        try:
            info = codecs.lookup(_text(raw))
            "\n".encode(raw)
        except (LookupError, UnicodeError):
            raise ValueError from None
        return info.name

    return _plain("the name of a text encoding, as utf-16-le or latin-1", read)


def pattern() -> Rule:
    """A regular expression, for bytes."""

    def read(raw: Any) -> re.Pattern[bytes]:
        try:
            return re.compile(_text(raw).encode())
        except re.error as error:
            raise ValueError(error) from None

    return _plain("a regular expression", read, lambda value: value.pattern.decode())


def template() -> Rule:
    """A template; None where it is empty."""

    def read(raw: Any) -> Template | None:
        return Template.parse(raw) if _text(raw) else None

    return _plain("a template, as {host}:{path}", read, str)


def templates() -> Rule:
    """A table of names and templates."""

    def read(raw: Any) -> tuple[tuple[str, Template], ...]:
        if not isinstance(raw, Mapping):
            raise ValueError  # noqa: TRY004
        return tuple((name, Template.parse(_text(raw[name]))) for name in raw)

    def write(headers: tuple[tuple[str, Template], ...]) -> dict[str, str]:
        return {name: template.text for name, template in headers}

    return _plain("a table of header names and templates", read, write)


def table(kind: type) -> Rule:
    """One table of a class of the configuration."""
    return Rule("a table", lambda raw, place: _read_table(kind, raw, place), _write_table, kind)


def tables(kind: type) -> Rule:
    """Any number of tables of a class of the configuration."""

    def read(raw: Any, place: str) -> tuple[Any, ...]:
        found = enumerate(_list(raw), 1)
        return tuple(_read_table(kind, item, f"{place}[{number}]") for number, item in found)

    def write(found: tuple[Any, ...]) -> list[Any]:
        return [*map(_write_table, found)]

    return Rule("tables, each below its own [[...]]", read, write, kind)


def _list(raw: object) -> list[Any]:
    if not isinstance(raw, list | tuple):
        raise ValueError  # noqa: TRY004
    return list(raw)


def _read_table(kind: type, raw: object, place: str) -> Any:
    from .reading import read_fields  # noqa: PLC0415 - tables hold fields, which have rules

    if not isinstance(raw, Mapping):
        raise ValueError  # noqa: TRY004
    return read_fields(kind, raw, place)


def _write_table(table: Any) -> dict[str, Any]:
    from .writing import to_document  # noqa: PLC0415 - as above

    return to_document(table)
