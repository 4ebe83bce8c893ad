"""The rules of fields that only a mirror has."""

import re
from typing import Any

from qbus.names import check_idc_name
from qbus.service.toml import Rule
from qbus.service.toml.rules import as_list, as_text, checked, listed, plain, text

from ...net.bootstrap import parse


def bootstrap() -> Rule:
    """The bootstrap of a cluster."""
    return checked("host:port,... or zk://host:port,.../chroot", parse)


def idc() -> Rule:
    """The name of a datacenter: the part before the first dot of its topics' names elsewhere."""

    def read(raw: Any) -> str:
        check_idc_name(as_text(raw))
        return as_text(raw)

    return plain("the name of a datacenter", read)


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
    return listed(text(1, 1000), "a list of keys of topics' configuration")
