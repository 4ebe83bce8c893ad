"""What only a mirror's fields may hold."""

import re
from typing import Any

from qbus.toml.rules import Rule, as_list, as_text, checked, plain

from ...bootstrap import parse

_IDC = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)


def bootstrap() -> Rule:
    """Where a cluster is."""
    return checked("host:port,... or zk://host:port,.../chroot", parse)


def idc() -> Rule:
    """The name of an IDC: what stands before the first dot of its topics' names elsewhere."""

    def read(raw: Any) -> str:
        if not _IDC.fullmatch(as_text(raw)):
            raise ValueError
        return as_text(raw)

    return plain("the name of an IDC: up to 64 ASCII letters, digits, '_' and '-'", read)


def patterns() -> Rule:
    """Regular expressions for names."""

    def read(raw: Any) -> tuple[str, ...]:
        for pattern in as_list(raw):
            try:
                re.compile(as_text(pattern))
            except re.error as error:
                raise ValueError(f"{pattern!r}: {error}") from None
            if not pattern:
                raise ValueError("one of them is empty")
        return tuple(raw)

    return plain("a list of names or regular expressions", read, list)


def keys() -> Rule:
    """Keys of topics' configuration."""

    def read(raw: Any) -> tuple[str, ...]:
        if not all(map(as_text, as_list(raw))):
            raise ValueError("one of them is empty")
        return tuple(raw)

    return plain("a list of keys of topics' configuration", read, list)
