"""What every client has to offer to be recorded."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ..history import Outcome

Told = Callable[[Outcome, int | None, str], None]
"""Takes what became of a record, its offset and the error.

Whatever is not certainly refused is UNKNOWN: a client that gave up may have stored the record with
the first of its attempts.
"""
Records = Sequence[tuple[int, bytes]]
"""Offsets and values of one partition."""

GIVES_UP_MS = 120_000
"""How long a producer tries."""
POLL_SECONDS = 0.2


class ProducerClient(ABC):
    """A producer with acks=all to one topic."""

    @abstractmethod
    def send(self, partition: int, value: bytes, told: Told) -> None:
        """Send a record; ``told`` is called once, from whatever thread, or never."""

    def poll(self) -> None:  # noqa: B027 - few need it
        """Have callbacks called, where a client wants to be asked for that."""

    @abstractmethod
    def close(self, timeout: float) -> None:
        """Wait for what is still open; what is not told in time stays unknown."""


class ConsumerClient(ABC):
    """Reads all partitions of a topic from the start, and never moves by itself."""

    @abstractmethod
    def poll(self) -> dict[int, Records]:
        """What came in a short while, by partition; raises what the client does."""

    @abstractmethod
    def close(self) -> None:
        """Leave."""
