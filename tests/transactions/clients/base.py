"""What every transactional client has to offer to be recorded."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ..history import Send

Place = tuple[str, int]
"""A topic and a partition."""
Records = list[tuple[int, str]]
"""Offsets and values of one partition."""

GIVES_UP_S = 60.0
"""How long a client tries one thing."""


class Failed(Exception):  # noqa: N818 - it says what happened
    """An operation failed. ``is_aborted``: the transaction is aborted for certain, and over."""

    def __init__(self, message: str, *, is_aborted: bool = False) -> None:
        super().__init__(message)
        self.is_aborted = is_aborted


class Client(ABC):
    """A producer with a transactional id, and a consumer whose group has that name.

    The consumer is assigned all ``places``; its positions are committed with transactions. Every
    method raises Failed.
    """

    def __init__(self, bootstrap: str, name: str, places: Sequence[Place], timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._name = name
        self._places = places
        self._topic = places[0][0]
        self._timeout_ms = timeout_ms

    @abstractmethod
    def open(self) -> None:
        """Make producer and consumer, anew if there are some, and go to committed positions.

        The transaction of a predecessor is ended by that.
        """

    @abstractmethod
    def rewind(self) -> None:
        """Go to the committed positions, or to the start where there is none."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction."""

    @abstractmethod
    def send(self, send: Send) -> None:
        """Send a record; its offset is noted when it is told."""

    @abstractmethod
    def poll(self, seconds: float) -> dict[int, Records]:
        """What came within a time, by partition."""

    @abstractmethod
    def add_positions(self) -> None:
        """Have the consumer's positions committed with the transaction."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the transaction."""

    @abstractmethod
    def abort(self) -> None:
        """Abort the transaction."""

    @abstractmethod
    def close(self) -> None:
        """Leave without ending the transaction, as far as the client allows that."""
