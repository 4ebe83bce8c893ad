"""What can be chosen about a producer."""

from dataclasses import dataclass
from typing import Literal

from qbus.errors import ConfigError
from qbus.records import Compression

Acks = Literal["all", 0, 1, -1]

MAX_IN_FLIGHT = 5
"""Batches of one idempotent producer that a broker remembers, per partition."""


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The options of :class:`~qbus.clients.Producer`, checked. Times are in seconds."""

    acks: int
    compression: Compression
    is_idempotent: bool
    linger: float
    batch_bytes: int
    buffer_bytes: int
    delivery_timeout: float
    topic_timeout: float

    @property
    def max_in_flight(self) -> int:
        """Batches on their way at once, per partition: without sequences one, to keep order."""
        return MAX_IN_FLIGHT if self.is_idempotent else 1


def parse_acks(acks: Acks) -> int:
    """The protocol's number; raises :class:`~qbus.errors.ConfigError`."""
    number = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(str(acks))
    if number is None:
        raise ConfigError(f'acks is "all", 1 or 0, not {acks!r}')
    return number


def parse_compression(name: str) -> Compression:
    """The codec of that name; raises :class:`~qbus.errors.ConfigError`."""
    try:
        return Compression[name.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Compression)
        raise ConfigError(f"compression is one of {names}, not {name!r}") from None
