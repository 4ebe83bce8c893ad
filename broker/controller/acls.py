"""Access rules added and removed: compare-and-set on the nodes of their patterns.

Every change sets the node above all rules at the version that was read before anything else, so it
is written only if no other change of any rule came in between. Changes of one broker follow each
other; each writes the rules of many patterns in one transaction.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Create, Delete, MetadataStore, Node, Op, Set
from qbus.metadata.acls import LITERAL_ACLS, acl_paths, decode_acls, encode_acls
from qbus.metadata.errors import MalformedNode
from qbus.metadata.znodes import ChangeNode
from qbus.security.acls import AclIndex, Entry, Filter, Pattern, Rule

from ..metadata.cache import MetadataCache
from .decisions import Decision, DecisionQueue

_PATTERNS_AT_ONCE: Final = 100
_ENTRIES_AT_ONCE: Final = 2000  # about 200 KiB
_ABOUT: Final = ("acls",)  # all of them: one change after the other

Entries = Mapping[Pattern, Sequence[Entry]]
Edit = Callable[[Pattern, Sequence[Entry]], Iterable[Entry]]
"""Given a pattern and its entries, makes those that it is to have."""


class Removed(NamedTuple):
    """A rule that a filter matched; ``error``: why it is still there, if it is."""

    rule: Rule
    error: ApiError | None


class AclEditor:
    """Adds and removes access rules. Errors are those of the decision queue."""

    def __init__(
        self, store: MetadataStore, metadata: MetadataCache, decisions: DecisionQueue
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._decisions = decisions

    async def add(self, rules: Sequence[Rule]) -> list[ApiError | None]:
        """Add rules, those that are there already too; returns the error of each, or None."""
        new: dict[Pattern, list[Entry]] = {}
        for rule in rules:
            new.setdefault(rule.pattern, []).append(rule.entry)

        def edit(pattern: Pattern, entries: Sequence[Entry]) -> Iterable[Entry]:
            return [*entries, *new[pattern]]

        outcomes = await self._edit(new, edit)
        return [_error(outcomes[rule.pattern]) for rule in rules]

    async def remove(self, filters: Sequence[Filter]) -> list[list[Removed]]:
        """Remove what filters match; returns for each filter what it matched.

        Raises:
            StoreUnavailable: what there is cannot be known.
        """
        await self._metadata.catch_up()
        acls = self._metadata.acls
        found: list[list[Pattern]] = []
        matching: dict[Pattern, list[Filter]] = {}
        for wanted in filters:
            found.append(list(dict.fromkeys(rule.pattern for rule in acls.find(wanted))))
            for pattern in found[-1]:
                matching.setdefault(pattern, []).append(wanted)
            await asyncio.sleep(0)  # filters are many, or look at every rule

        def edit(pattern: Pattern, entries: Sequence[Entry]) -> Iterable[Entry]:
            some = matching[pattern]
            return [e for e in entries if not any(one.matches_entry(e) for one in some)]

        outcomes = await self._edit({one: acls.entries(one) for one in matching}, edit)
        return [
            [one for pattern in some for one in _removed(wanted, pattern, outcomes[pattern], acls)]
            for wanted, some in zip(filters, found, strict=True)
        ]

    async def _edit(
        self, sizes: Mapping[Pattern, Collection[Entry]], edit: Edit
    ) -> dict[Pattern, Sequence[Entry] | ApiError]:
        """Edit the rules of patterns; returns what they were, or why they are the same still."""
        outcomes: dict[Pattern, Sequence[Entry] | ApiError] = {}
        for some in _chunks(sizes):
            plan = partial(self._plan, some, edit)
            try:
                outcomes |= await self._decisions.put(_ABOUT, plan)
            except ApiError as error:
                outcomes |= dict.fromkeys(some, error)
        return outcomes

    async def _plan(
        self, patterns: Sequence[Pattern], edit: Edit, _: int
    ) -> Decision[dict[Pattern, Sequence[Entry] | ApiError]]:
        fence = await self._store.get(LITERAL_ACLS)
        paths = {pattern: acl_paths(pattern) for pattern in patterns}
        nodes = await self._store.get_many([path for some in paths.values() for path in some])
        outcomes: dict[Pattern, Sequence[Entry] | ApiError] = {}
        ops: list[Op] = []
        changed: list[str] = []
        for pattern, some in paths.items():
            try:
                before = _entries(pattern, some, nodes)
            except ApiError as error:
                outcomes[pattern] = error
                continue
            outcomes[pattern] = before
            after = list(dict.fromkeys(edit(pattern, before)))
            if after != before:
                ops += _writes(some, nodes, after)
                changed.append(some[0])
        if ops:
            ops.insert(0, Create(LITERAL_ACLS) if fence is None else _again(fence))
        return Decision(outcomes, ops, ChangeNode(acls=tuple(changed)))


def _again(fence: Node) -> Op:
    return Set(LITERAL_ACLS, fence.data, fence.version)


def _entries(pattern: Pattern, paths: Sequence[str], nodes: Mapping[str, Node]) -> list[Entry]:
    """The stored entries of a pattern. Raises ApiError: they cannot be read."""
    entries: dict[Entry, None] = {}
    for path in paths:
        if path in nodes:
            try:
                entries |= dict.fromkeys(decode_acls(nodes[path].data))
            except MalformedNode:
                raise ApiError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"the access rules of {pattern} cannot be read: mend or delete the node {path} "
                    "of the metadata store",
                ) from None
    return list(entries)


def _writes(
    paths: Sequence[str], nodes: Mapping[str, Node], entries: Sequence[Entry]
) -> Iterator[Op]:
    """What makes ``entries`` those of the pattern at ``paths``, at the first of them."""
    for place, path in enumerate(paths):
        node = nodes.get(path)
        if place == 0 and entries:
            data = encode_acls(entries)
            yield Create(path, data) if node is None else Set(path, data, node.version)
        elif node is not None:
            yield Delete(path, node.version)


def _chunks(sizes: Mapping[Pattern, Collection[Entry]]) -> Iterator[list[Pattern]]:
    """The patterns, in groups that one transaction can write."""
    some: list[Pattern] = []
    entries = 0
    for pattern, one in sizes.items():
        entries += len(one)
        if some and (len(some) >= _PATTERNS_AT_ONCE or entries > _ENTRIES_AT_ONCE):
            yield some
            some, entries = [], len(one)
        some.append(pattern)
    if some:
        yield some


def _error(outcome: Sequence[Entry] | ApiError) -> ApiError | None:
    return outcome if isinstance(outcome, ApiError) else None


def _removed(
    wanted: Filter, pattern: Pattern, outcome: Sequence[Entry] | ApiError, acls: AclIndex
) -> Iterator[Removed]:
    """What a filter matched of a pattern: gone, or still there for an error."""
    entries = acls.entries(pattern) if isinstance(outcome, ApiError) else outcome
    for entry in entries:
        if wanted.matches_entry(entry):
            yield Removed(Rule(pattern, entry), _error(outcome))
