"""Rules of fields: from TOML's values to Python's, or a refusal that says what is allowed."""

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from qbus.errors import ApiError, ConfigError
from qbus.names import check_topic_name
from qbus.service.toml.fields import Rule, abbreviated, read_fields, to_document, unchanged


def plain(
    allowed: str, read: Callable[[Any], Any], write: Callable[[Any], Any] = unchanged
) -> Rule:
    """A rule that does not depend on the place of its field."""
    return Rule(allowed, lambda raw, _: read(raw), write)


def as_text(raw: object) -> str:
    """Return text without NUL characters; raises ValueError for anything else."""
    if not isinstance(raw, str):
        raise ValueError  # noqa: TRY004 - one exception for all that is not allowed
    if "\0" in raw:
        raise ValueError("it holds a NUL character")
    return raw


def boolean() -> Rule:
    """True or false, and nothing else."""

    def read(raw: Any) -> bool:
        if not isinstance(raw, bool):
            raise ValueError  # noqa: TRY004
        return raw

    return plain("true or false", read)


def whole(at_least: int, at_most: int) -> Rule:
    """A whole number within bounds."""

    def read(raw: Any) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or not at_least <= raw <= at_most:
            raise ValueError
        return raw

    return plain(f"a whole number from {at_least} to {at_most}", read)


def real(at_least: float, at_most: float) -> Rule:
    """A number within bounds, integer or not."""

    def read(raw: Any) -> float:
        if not isinstance(raw, int | float) or isinstance(raw, bool):
            raise ValueError  # noqa: TRY004 - one exception for all that is not allowed
        if not at_least <= raw <= at_most:
            raise ValueError
        return float(raw)

    return plain(f"a number from {at_least:g} to {at_most:g}", read)


def text(at_least: int, at_most: int) -> Rule:
    """Text with a bounded number of characters."""

    def read(raw: Any) -> str:
        if not at_least <= len(as_text(raw)) <= at_most:
            raise ValueError
        return as_text(raw)

    return plain(f"text of {at_least} to {at_most} characters", read)


def choice(*names: str) -> Rule:
    """One of a few names."""

    def read(raw: Any) -> str:
        if as_text(raw) not in names:
            raise ValueError
        return as_text(raw)

    return plain("one of " + ", ".join(names), read)


def regex() -> Rule:
    """The text of a regular expression."""

    def read(raw: Any) -> str:
        try:
            re.compile(as_text(raw))
        except re.error as error:
            raise ValueError(error) from None
        return as_text(raw)

    return plain("a regular expression", read)


def topic() -> Rule:
    """A valid topic name."""

    def read(raw: Any) -> str:
        try:
            check_topic_name(as_text(raw))
        except ApiError as error:
            raise ValueError(error) from None
        return as_text(raw)

    return plain("the name of a topic", read)


def checked(allowed: str, check: Callable[[str], object]) -> Rule:
    """Text for which ``check`` raises no ConfigError; surrounding spaces are removed."""

    def read(raw: Any) -> str:
        try:
            check(as_text(raw))
        except ConfigError as error:
            raise ValueError(error) from None
        return as_text(raw).strip()

    return plain(allowed, read)


def as_absolute_path(raw: object) -> str:
    """Return the text of an absolute path; raises ValueError for anything else."""
    if not PurePath(as_text(raw)).is_absolute():
        raise ValueError(f"{raw!r} does not begin with /")
    return as_text(raw)


def path() -> Rule:
    """An absolute path."""
    return plain("an absolute path", as_absolute_path)


def listed(rule: Rule, allowed: str) -> Rule:
    """A list of values of another rule; ``allowed`` names them."""

    def one(raw: Any) -> Any:
        try:
            return rule.read(raw, "")
        except ValueError as error:
            why = f": {error}" if str(error) else ""
            raise ValueError(f"{abbreviated(raw)} is none{why}") from None

    return plain(
        allowed,
        lambda raw: tuple(map(one, as_list(raw))),
        lambda found: [*map(rule.write, found)],
    )


def table(kind: type) -> Rule:
    """One table of a configuration class."""
    return Rule("a table", lambda raw, place: _read_table(kind, raw, place), to_document, kind)


def tables(kind: type) -> Rule:
    """Any number of tables of a configuration class."""

    def read(raw: Any, place: str) -> tuple[Any, ...]:
        found = enumerate(as_list(raw), 1)
        return tuple(_read_table(kind, item, f"{place}[{number}]") for number, item in found)

    def write(found: tuple[Any, ...]) -> list[Any]:
        return [*map(to_document, found)]

    return Rule("tables, each below its own [[...]]", read, write, kind)


def as_list(raw: object) -> list[Any]:
    """Return a list; raises ValueError for anything else."""
    if not isinstance(raw, list | tuple):
        raise ValueError  # noqa: TRY004
    return list(raw)


def as_table(raw: object) -> Mapping[str, Any]:
    """Return a table; raises ValueError for anything else."""
    if not isinstance(raw, Mapping):
        raise ValueError  # noqa: TRY004
    return raw


def _read_table(kind: type, raw: object, place: str) -> Any:
    return read_fields(kind, as_table(raw), place)
