"""One row of the table: a request, what it needs in which order, and what it is answered."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .rules import CLUSTER_NAME, Kind, Need, Rule, authorized_operations, is_allowed

#: Answers that name nobody's operations: the field is not filled.
NOT_FILLED: Final = -(2**31)

Answer = frozenset[str]
"""What of an answer depends on rules: errors with their places, names shown, operations allowed."""


class IdOf(str):
    """Stands in a request for the id of a topic of that name."""

    __slots__ = ()


class Check:
    """What a request needs: one of several operations, in words as ``"READ topic orders"``.

    ``refusal``: the answer without it, each part a place and an error. Unless it ``goes_on``,
    nothing is checked after a refusal.
    """

    def __init__(self, needs: str, *refusal: str, goes_on: bool = False) -> None:
        self.needs = tuple(Need.parse(one) for one in needs.split(" or "))
        self.refusal = refusal
        self.goes_on = goes_on

    def passes(self, rules: Iterable[Rule], host: str) -> bool:
        """Whether somebody with these rules may do one of them."""
        rules = tuple(rules)
        return any(is_allowed(rules, host, need) for need in self.needs)


@dataclass(frozen=True)
class Row:
    """A request and its answers."""

    api: str
    version: int
    case: str
    request: Mapping[str, Any]
    #: In the order in which they are made.
    checks: tuple[Check, ...] = ()
    #: The answer if none of them refuses: errors that have nothing to do with rules.
    then: tuple[str, ...] = ()
    #: What Qbus answers instead: a difference that there is without rules, too.
    our_then: tuple[str, ...] | None = None
    #: Names that are in the answer if one may do that, and left out without a word otherwise.
    shows: Mapping[str, str] = field(default_factory=dict)
    #: Places of authorized operations, with whose they are: ``"topic orders"`` or ``"cluster"``.
    operations: Mapping[str, str] = field(default_factory=dict)
    #: Asked by those without the lobby.
    is_bare: bool = False
    #: Not asked by those who are allowed: it would change what others are asked about.
    only_refused: bool = False
    #: Whether Apache Kafka has it.
    is_kafkas: bool = True

    @property
    def label(self) -> str:
        """A name for people."""
        return f"{self.api} v{self.version}, {self.case}"

    def refusals(self, rules: Iterable[Rule], host: str) -> Iterator[Check]:
        """The checks that refuse somebody with these rules."""
        for check in self.checks:
            if not check.passes(rules, host):
                yield check
                if not check.goes_on:
                    return

    def expected(self, rules: tuple[Rule, ...], host: str, target: str = "kafka") -> Answer:
        """What somebody with these rules is answered by Qbus or Kafka."""
        parts: list[str] = []
        stopped = False
        for check in self.refusals(rules, host):
            parts += check.refusal
            stopped |= not check.goes_on
        if stopped:
            return frozenset(parts)
        ours = self.our_then if target == "qbus" else None
        parts += self.then if ours is None else ours
        for name, needs in self.shows.items():
            if any(is_allowed(rules, host, Need.parse(one)) for one in needs.split(" or ")):
                parts.append(f"shows {name}")
        for place, whose in self.operations.items():
            parts += _operations(rules, host, place, whose)
        return frozenset(parts)


def _operations(rules: tuple[Rule, ...], host: str, place: str, whose: str) -> Iterator[str]:
    if whose == "cluster":
        may_ask = is_allowed(rules, host, Need.parse("DESCRIBE cluster"))
        found = authorized_operations(rules, host, Kind.CLUSTER, CLUSTER_NAME) if may_ask else ""
        yield f"{place} may {found or 'nothing'}"
        return
    kind, name = whose.split()
    found = authorized_operations(rules, host, Kind[kind.upper()], name)
    yield f"{place} may {found or 'nothing'}"


_NAMED: Final = re.compile(r"[\w./-]+")


def names_in(value: object) -> set[str]:
    """All names that a request mentions, or any text in an answer holds."""
    if isinstance(value, IdOf):
        return set()
    if isinstance(value, str):
        return set(_NAMED.findall(value))
    if isinstance(value, Mapping):
        return {name for one in value.values() for name in names_in(one)}
    if isinstance(value, list | tuple):
        return {name for one in value for name in names_in(one)}
    return set()
