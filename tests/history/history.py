"""The operations on one topic as its clients saw them, with their times."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Self


class Outcome(Enum):
    """The outcome of a send, as its producer knows it."""

    OK = "ok"
    """The record is stored."""
    FAILED = "failed"
    """The record is not stored and never will be."""
    UNKNOWN = "unknown"
    """Not known: a time-out, a lost connection, a killed client, or no outcome yet."""


@dataclass(slots=True)
class Produce:
    """One record that was sent, and its outcome.

    Times are of the system's monotonic clock, in seconds, which all processes share.
    """

    producer: str
    partition: int
    value: bytes
    started: float
    ended: float | None = None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None
    """The offset where it is stored; None if it is unknown."""
    error: str = ""


@dataclass(slots=True)
class Poll:
    """Records of one partition that a poll returned, as pairs of offset and value.

    ``session`` is incremented at every seek; within a session, polls leave no gap.
    """

    consumer: str
    partition: int
    records: Sequence[tuple[int, bytes]]
    ended: float
    session: int = 0


@dataclass(slots=True)
class History:
    """All operations, those of each client in the order in which it started them."""

    produces: list[Produce] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    relaxed: set[str] = field(default_factory=set)
    """Producers that are not idempotent: they may duplicate and reorder records."""
    ends: dict[int, int] = field(default_factory=dict)
    """The final end of each partition, where known: every record below it can be read."""
    errors: list[str] = field(default_factory=list)
    """Errors of clients; consumers continue after one, producers stop."""

    @classmethod
    def merged(cls, histories: Iterable["History"]) -> Self:
        """Merge the histories of several clients."""
        whole = cls()
        for part in histories:
            whole.produces += part.produces
            whole.polls += part.polls
            whole.relaxed |= part.relaxed
            whole.ends |= part.ends
            whole.errors += part.errors
        return whole

    def told(self, outcome: Outcome) -> int:
        """The number of records with this outcome."""
        return sum(produce.outcome is outcome for produce in self.produces)

    def to_json(self) -> str:
        """Return JSON for :meth:`from_json`."""
        return json.dumps(asdict(self), default=_plain)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the history that :meth:`to_json` wrote."""
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
