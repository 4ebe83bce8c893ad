"""Transactions as their clients saw them, with their times."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Self


class Outcome(Enum):
    """The outcome of a transaction, as its client knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """Aborted for certain: its commit was refused, or never asked for."""
    UNKNOWN = "unknown"
    """Its commit was asked for, and no answer came."""


@dataclass(slots=True)
class Send:
    """One record that was sent in a transaction; ``offset`` is where, if that was told."""

    partition: int
    value: str
    offset: int | None = None


@dataclass(slots=True)
class Poll:
    """Records of one partition that a poll returned, as pairs of offset and value.

    ``session`` is incremented whenever the consumer's position is set; within a session, polls
    go on where the last one ended.
    """

    partition: int
    records: list[tuple[int, str]]
    ended: float
    session: int = 0


@dataclass(slots=True)
class Transaction:
    """What one client did between the beginning of a transaction and its end.

    Times are of the system's monotonic clock, in seconds. ``committing`` is when its commit was
    asked for, None if it never was. What it polled is consumed if it is committed.
    """

    client: str
    started: float
    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    committing: float | None = None
    ended: float | None = None
    outcome: Outcome = Outcome.ABORTED
    error: str = ""


@dataclass(slots=True)
class Ends:
    """The last stable offset and the end of a partition, asked for and told at these times."""

    partition: int
    stable: int
    end: int
    asked: float
    told: float


@dataclass(slots=True)
class History:
    """All transactions, those of each client in their order, and what was seen at the end."""

    transactions: list[Transaction] = field(default_factory=list)
    ends: list[Ends] = field(default_factory=list)
    final: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    """All that is committed in each partition: offsets and values, read at the end."""
    positions: dict[str, dict[int, int]] = field(default_factory=dict)
    """The committed offsets of each client's group at the end."""
    errors: list[str] = field(default_factory=list)

    @classmethod
    def merged(cls, histories: Iterable["History"]) -> Self:
        """Merge the histories of several processes."""
        whole = cls()
        for part in histories:
            whole.transactions += part.transactions
            whole.ends += part.ends
            whole.final |= part.final
            whole.positions |= part.positions
            whole.errors += part.errors
        return whole

    def told(self, outcome: Outcome) -> int:
        """The number of transactions with this outcome."""
        return sum(one.outcome is outcome for one in self.transactions)

    def to_json(self) -> str:
        """Return JSON for :meth:`from_json`."""
        return json.dumps(asdict(self), default=lambda thing: thing.value)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the history that :meth:`to_json` wrote."""
        data = json.loads(text)
        return cls(
            [_transaction(one) for one in data["transactions"]],
            [Ends(**one) for one in data["ends"]],
            {int(index): _pairs(records) for index, records in data["final"].items()},
            {
                client: {int(index): offset for index, offset in positions.items()}
                for client, positions in data["positions"].items()
            },
            data["errors"],
        )


def _transaction(data: dict[str, Any]) -> Transaction:
    polls = [Poll(**{**one, "records": _pairs(one["records"])}) for one in data["polls"]]
    sends = [Send(**one) for one in data["sends"]]
    return Transaction(
        **{**data, "sends": sends, "polls": polls, "outcome": Outcome(data["outcome"])}
    )


def _pairs(records: Iterable[Iterable[Any]]) -> list[tuple[int, str]]:
    return [(offset, value) for offset, value in records]
