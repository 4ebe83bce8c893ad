"""What every transactional client has to offer to the tests."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

Place = tuple[str, int]
"""A topic and a partition."""

PATIENCE = 30.0
"""Seconds that a client has for one operation."""


class Read(NamedTuple):
    """A record that a consumer was given."""

    offset: int
    value: str


class Refused(Exception):  # noqa: N818 - it names what happened
    """A transactional operation failed; the message is the client's own.

    ``is_fenced``: another producer has taken the transactional id, or its transaction was ended
    for it, and this producer is of no more use.
    """

    def __init__(self, message: str, *, is_fenced: bool) -> None:
        super().__init__(message)
        self.is_fenced = is_fenced


class Producer(Protocol):
    """A transactional producer, initialised. Each method waits for its end; raises Refused."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, topic: str, values: Sequence[str], partition: int = 0) -> None:
        """Send records in the transaction, and wait until the broker has acknowledged them."""

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Commit a group's offsets with the transaction."""

    def commit(self) -> None:
        """Commit the transaction."""

    def abort(self) -> None:
        """Abort the transaction."""

    def close(self) -> None:
        """Close without ending the transaction, where the client lets its user do so."""


class TransactionalClient(Protocol):
    """One client library, connected to one broker."""

    name: ClassVar[str]
    has_offsets: ClassVar[bool]
    """Whether it takes any offsets into a transaction, not only those of its own consumer."""

    def producer(self, transactional_id: str, timeout_ms: int = 60_000) -> Producer:
        """Return a producer after it has taken the transactional id. Raises Refused."""

    def read(
        self, topic: str, count: int, *, partition: int = 0, committed: bool = True
    ) -> list[Read]:
        """Read from the start until so many records came; fail after PATIENCE.

        ``committed``: with isolation ``read_committed``, else ``read_uncommitted``.
        """

    def copy(self, source: str, target: str, group: str, count: int) -> None:
        """Read so many records as a member of a group, and copy them, a transaction a poll.

        The records keep their values and partitions; the offsets go along with them.
        """

    def close(self) -> None:
        """Release what the client holds."""
