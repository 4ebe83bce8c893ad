"""Assignors: how the leader of a group shares out the partitions."""

from collections.abc import Iterable

from qbus.errors import ConfigError

from .base import Assignments, Assignor, Candidate, Previous, Topics
from .range import RangeAssignor
from .roundrobin import RoundRobinAssignor
from .sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "DEFAULT_ASSIGNORS",
    "Assignments",
    "Assignor",
    "Candidate",
    "CooperativeStickyAssignor",
    "Previous",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Topics",
    "assignors_of",
]

_BUILT_IN: dict[str, type[Assignor]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
DEFAULT_ASSIGNORS = ("range", "roundrobin", "cooperative-sticky")
"""Range where all members can, as in the other clients; something in common with each of them."""


def assignors_of(chosen: Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """Return the assignors chosen by name, or given as objects, in order.

    Raises :class:`~qbus.errors.ConfigError`.
    """
    if isinstance(chosen, str):
        chosen = (chosen,)
    found: dict[str, Assignor] = {}
    for choice in chosen:
        if not isinstance(choice, Assignor) and choice not in _BUILT_IN:
            raise ConfigError(f"assignors are {', '.join(_BUILT_IN)}; not {choice!r}")
        assignor = choice if isinstance(choice, Assignor) else _BUILT_IN[choice]()
        if assignor.name in found:
            raise ConfigError(f"two assignors have the name {assignor.name!r}")
        found[assignor.name] = assignor
    if not found:
        raise ConfigError("a member of a group needs an assignor")
    return tuple(found.values())
