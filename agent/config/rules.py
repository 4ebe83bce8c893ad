"""The rules of fields that only an agent has."""

import codecs
import re
from typing import Any

from qbus.service.toml import Rule
from qbus.service.toml.rules import (
    as_absolute_path,
    as_list,
    as_table,
    as_text,
    checked,
    listed,
    plain,
    text,
)

from .template import Template


def bootstrap() -> Rule:
    """The bootstrap of the cluster."""

    def check(text: str) -> None:
        from qbus.clients.net.bootstrap import parse  # noqa: PLC0415 - loads the wire protocol

        parse(text)

    return checked("host:port,... or zk://host:port,.../chroot", check)


def paths() -> Rule:
    """One or more absolute paths or globs."""

    def read(raw: Any) -> tuple[str, ...]:
        found = tuple(map(as_absolute_path, as_list(raw)))
        if not found:
            raise ValueError
        return found

    return plain("a list of one or more absolute paths or globs", read, list)


def globs() -> Rule:
    """Globs of paths or names."""
    return listed(text(1, 4096), "a list of globs")


def encoding() -> Rule:
    """An encoding of text that Python knows."""

    def read(raw: Any) -> str:
        try:
            info = codecs.lookup(as_text(raw))
            "\n".encode(raw)
        except (LookupError, UnicodeError):
            raise ValueError from None
        return info.name

    return plain("the name of a text encoding, such as utf-16-le or latin-1", read)


def pattern() -> Rule:
    """A regular expression, for bytes."""

    def read(raw: Any) -> re.Pattern[bytes]:
        try:
            return re.compile(as_text(raw).encode())
        except re.error as error:
            raise ValueError(error) from None

    return plain("a regular expression", read, lambda value: value.pattern.decode())


def template() -> Rule:
    """A template; None if it is empty."""

    def read(raw: Any) -> Template | None:
        return Template.parse(raw) if as_text(raw) else None

    return plain("a template, such as {host}:{path}", read, str)


def templates() -> Rule:
    """A table of names and templates."""

    def read(raw: Any) -> tuple[tuple[str, Template], ...]:
        return tuple(
            (name, Template.parse(as_text(value))) for name, value in as_table(raw).items()
        )

    def write(headers: tuple[tuple[str, Template], ...]) -> dict[str, str]:
        return {name: template.text for name, template in headers}

    return plain("a table of header names and templates", read, write)
