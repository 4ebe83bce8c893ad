"""Operations on one topic as its clients saw them, and when they took effect."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Self


class Outcome(Enum):
    """What a producer was told of a record."""

    OK = "ok"
    """It is stored."""
    FAILED = "failed"
    """It is not, and never will be."""
    UNKNOWN = "unknown"
    """Nothing, or what leaves it open: a time-out, a lost connection, a killed client."""


@dataclass(slots=True)
class Produce:
    """One record on its way, and what its producer was told of it.

    Times are of the system's monotonic clock, in seconds, the same in all processes.
    """

    producer: str
    partition: int
    value: bytes
    started: float
    ended: float | None = None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None
    """Where it is stored; None when that was not told."""
    error: str = ""


@dataclass(slots=True)
class Poll:
    """Records of one partition that a consumer handed out at once, as pairs of offset and value.

    ``session``: a number that a consumer counts up whenever it seeks; within a session, polls
    follow each other without a gap.
    """

    consumer: str
    partition: int
    records: Sequence[tuple[int, bytes]]
    ended: float
    session: int = 0


@dataclass(slots=True)
class History:
    """All that happened, each client's operations in the order in which it began them."""

    produces: list[Produce] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    relaxed: set[str] = field(default_factory=set)
    """Producers that are not idempotent: may store a record twice, and after a later one."""
    ends: dict[int, int] = field(default_factory=dict)
    """The end of each partition when all was over, where it is known: all below it can be read."""
    errors: list[str] = field(default_factory=list)
    """What clients complained of: consumers read on after that, producers have given up."""

    @classmethod
    def merged(cls, histories: Iterable["History"]) -> Self:
        """One history out of those of several clients."""
        whole = cls()
        for one in histories:
            whole.produces += one.produces
            whole.polls += one.polls
            whole.relaxed |= one.relaxed
            whole.ends |= one.ends
            whole.errors += one.errors
        return whole

    def told(self, outcome: Outcome) -> int:
        """How many records had this outcome."""
        return sum(one.outcome is outcome for one in self.produces)

    def to_json(self) -> str:
        """A text that :meth:`from_json` reads."""
        return json.dumps(asdict(self), default=_plain)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The history that :meth:`to_json` wrote."""
        data = json.loads(text)
        return cls(
            [_produce(one) for one in data["produces"]],
            [_poll(one) for one in data["polls"]],
            set(data["relaxed"]),
            {int(partition): end for partition, end in data["ends"].items()},
            data["errors"],
        )


def _plain(thing: object) -> Any:
    match thing:
        case bytes():
            return thing.decode("latin-1")
        case Outcome():
            return thing.value
        case set():
            return sorted(thing)
    raise TypeError(type(thing))


def _produce(data: dict[str, Any]) -> Produce:
    value = data["value"].encode("latin-1")
    return Produce(**{**data, "value": value, "outcome": Outcome(data["outcome"])})


def _poll(data: dict[str, Any]) -> Poll:
    records = [(offset, value.encode("latin-1")) for offset, value in data["records"]]
    return Poll(**{**data, "records": records})
