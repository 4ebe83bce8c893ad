"""A transactional id's state: who writes under it, and how its transaction stands (KIP-98)."""

from enum import IntEnum
from typing import Final, NamedTuple

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NOT_STARTED: Final = -1

MAX_EPOCH: Final = 2**15 - 2
"""The last epoch that a producer gets: one more is kept, so that it can be fenced."""

Place = tuple[str, int]
"""A topic's name and a partition's index."""


class State(IntEnum):
    """How a transaction stands: the numbers are Kafka's.

    DEAD and PREPARE_EPOCH_FENCE are never stored: what expires is deleted, and fencing a producer
    is one step together with aborting its transaction.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that Kafka's tools show, such as ``CompleteCommit``."""
        return self.name.title().replace("_", "")


ENDING: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""It is decided how the transaction ends, and some partitions may not know it yet."""

OVER: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""There is no transaction."""


class Transaction(NamedTuple):
    """A transactional id, its producer, and its transaction. Times are milliseconds since 1970.

    ``last_epoch`` is the epoch before, that a producer still has which did not hear of a later one.
    ``previous_producer_id`` is the id before the last change of ids; ``next_producer_id`` the one
    that comes with the end of the transaction, when the epochs are used up. ``groups`` are those
    whose offsets it commits in the metadata store. ``client_version`` is the transaction version
    (KIP-890) of the client that ended the transaction.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: State
    timeout_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH
    partitions: frozenset[Place] = frozenset()
    groups: frozenset[str] = frozenset()
    started_ms: int = NOT_STARTED
    updated_ms: int = NOT_STARTED
    client_version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether its producer can get no further epoch."""
        return self.epoch >= MAX_EPOCH

    @property
    def deadline_ms(self) -> int | None:
        """When it is aborted, if it is open then."""
        return self.started_ms + self.timeout_ms if self.state is State.ONGOING else None

    @property
    def is_committed(self) -> bool:
        """How it ends, or ended."""
        return self.state in {State.PREPARE_COMMIT, State.COMPLETE_COMMIT}
