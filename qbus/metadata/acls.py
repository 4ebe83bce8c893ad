"""Access rules in the store: of each pattern a node, with its entries as Kafka wrote them.

Rules of literal names lie below ``/kafka-acl``, those of prefixes below
``/kafka-acl-extended/prefixed``; a node's data are Kafka's JSON, version 1. Names are escaped,
which leaves those of topics as they are. Every change also sets the node ``/kafka-acl``, whose
version so is that of all rules: who checks it has missed nothing since it read.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from qbus.metadata.errors import MalformedNode
from qbus.metadata.paths import check
from qbus.names import escape, unescape
from qbus.security.acls import (
    WILDCARD,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

LITERAL_ACLS: Final = "/kafka-acl"
EXTENDED_ACLS: Final = "/kafka-acl-extended"
PREFIXED_ACLS: Final = f"{EXTENDED_ACLS}/prefixed"

_VERSION: Final = 1
_ROOTS: Final = {PatternType.LITERAL: LITERAL_ACLS, PatternType.PREFIXED: PREFIXED_ACLS}


def _camel(name: str) -> str:
    return name.title().replace("_", "")


_TYPES: Final = {_camel(one.name): one for one in ResourceType if one > ResourceType.ANY}
_OPERATIONS: Final = {_camel(one.name): one for one in Operation if one > Operation.ANY}
_PERMISSIONS: Final = {_camel(one.name): one for one in Permission if one > Permission.ANY}


def acl_path(pattern: Pattern) -> str:
    """The path of a pattern's node."""
    name = WILDCARD if pattern.name == WILDCARD else escape(pattern.name)
    return f"{_ROOTS[pattern.pattern]}/{_camel(pattern.type.name)}/{name}"


def acl_paths(pattern: Pattern) -> tuple[str, ...]:
    """The paths at which rules of a pattern may be; they are written to the first one.

    Kafka did not escape names, so there may be another node for one that has to be.
    """
    path = acl_path(pattern)
    former = f"{path.rpartition('/')[0]}/{pattern.name}"
    if former == path or "/" in pattern.name or pattern_at(former) != pattern:
        return (path,)
    try:
        check(former)
    except ValueError:
        return (path,)
    return path, former


def pattern_at(path: str) -> Pattern | None:
    """The pattern whose node has this path; None of any other path.

    A name that is not escaped stands for itself, as Kafka wrote names.
    """
    for kind, root in reversed(_ROOTS.items()):
        if path.startswith(f"{root}/"):
            type_name, slash, name = path[len(root) + 1 :].partition("/")
            if not slash or type_name not in _TYPES:
                return None
            return Pattern(_TYPES[type_name], _plain(name), kind)
    return None


def _plain(name: str) -> str:
    try:
        plain = unescape(name)
    except ValueError:
        return name
    return name if plain == WILDCARD else plain  # which is never escaped


def encode_acls(entries: Iterable[Entry]) -> bytes:
    """Kafka's JSON, version 1."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": _camel(entry.permission.name),
            "operation": _camel(entry.operation.name),
            "host": entry.host,
        }
        for entry in entries
    ]
    return json.dumps({"version": _VERSION, "acls": acls}, separators=(",", ":")).encode()


def decode_acls(data: bytes) -> list[Entry]:
    """Decode what :func:`encode_acls` or Kafka wrote.

    Raises:
        MalformedNode: a part of it is not understood; the rest then is not to be trusted either.
    """
    try:
        return list(_decoded(json.loads(str(data, "utf-8"))))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedNode(f"no access rules: {data[:200]!r}") from error


def _decoded(written: Any) -> Iterator[Entry]:
    if written["version"] != _VERSION:
        raise ValueError
    for one in written["acls"]:
        principal, host = one["principal"], one["host"]
        if not (isinstance(principal, str) and isinstance(host, str)):
            raise TypeError
        yield Entry(
            principal,
            host,
            _OPERATIONS[one["operation"]],
            _PERMISSIONS[one["permissionType"]],
        )
