"""The options of a producer."""

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Literal

from qbus.errors import ConfigError
from qbus.records import Buffer, Compression

from ..types import TopicDescription
from .delivery import Delivery

Acks = Literal["all", 0, 1, -1]
OnFull = Literal["block", "raise"]
OnDelivery = Callable[[Delivery], object]
Partitioner = Callable[[TopicDescription, Buffer | None, Buffer | None], int | None]
"""Takes topic, key and value; returns the partition, or None for any."""
Spool = str | PathLike[str]

MAX_IN_FLIGHT = 5
"""Batches per partition that a broker remembers of an idempotent producer."""


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The checked options of :class:`~qbus.clients.Producer`. Times are in seconds."""

    acks: int = -1
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    is_idempotent: bool = True
    linger: float = 0.005
    batch_bytes: int = 1_000_000
    buffer_bytes: int = 64 * 1024 * 1024
    on_full: OnFull = "block"
    delivery_timeout: float = 120.0
    request_timeout: float = 30.0
    retry_backoff: float = 0.1
    retry_backoff_max: float = 1.0
    max_in_flight: int = MAX_IN_FLIGHT
    partitioner: Partitioner | None = None
    on_delivery: OnDelivery | None = None
    spool_dir: Spool | None = None
    transactional_id: str | None = None
    transaction_timeout: float = 60.0

    def __post_init__(self) -> None:
        """Raise :class:`~qbus.errors.ConfigError` for values that do not go together."""
        if self.is_idempotent and self.acks != -1:
            raise ConfigError('an idempotent producer needs acks="all"')
        self._check_transactional()
        if self.max_in_flight < 1:
            raise ConfigError("max_in_flight is at least 1")
        if self.is_idempotent and self.max_in_flight > MAX_IN_FLIGHT:
            raise ConfigError(f"an idempotent producer has at most {MAX_IN_FLIGHT} in flight")
        if self.batch_bytes < 1 or self.buffer_bytes < 1:
            raise ConfigError("batch_bytes and buffer_bytes are at least 1")
        if self.linger < 0:
            raise ConfigError("linger_ms is not negative")
        for name in ("delivery_timeout", "request_timeout", "retry_backoff", "retry_backoff_max"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}_ms is more than 0")
        if self.on_full not in {"block", "raise"}:
            raise ConfigError(f'on_full is "block" or "raise", not {self.on_full!r}')
        if self.compression_level is not None and self.compression in {
            Compression.NONE,
            Compression.SNAPPY,
        }:
            raise ConfigError(f"{self.compression.name.lower()} has no compression_level")

    def _check_transactional(self) -> None:
        if self.transactional_id is None:
            return
        if not self.transactional_id:
            raise ConfigError("a transactional_id is not empty")
        if not self.is_idempotent:
            raise ConfigError("a transactional producer is idempotent")
        if self.spool_dir is not None:
            raise ConfigError("what a transaction cannot deliver is aborted: it has no spool_dir")
        if self.transaction_timeout <= 0:
            raise ConfigError("transaction_timeout_ms is more than 0")

    @property
    def topic_timeout(self) -> float:
        """How long a send waits for the metadata of its topic."""
        return min(self.request_timeout, self.delivery_timeout)


def parse_acks(acks: Acks) -> int:
    """Return the protocol's number; raise :class:`~qbus.errors.ConfigError`."""
    number = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(str(acks))
    if number is None:
        raise ConfigError(f'acks is "all", 1 or 0, not {acks!r}')
    return number


def parse_compression(name: str) -> Compression:
    """Return the codec of that name; raise :class:`~qbus.errors.ConfigError`."""
    try:
        return Compression[name.upper()]
    except (KeyError, AttributeError):
        names = ", ".join(codec.name.lower() for codec in Compression)
        raise ConfigError(f"compression is one of {names}, not {name!r}") from None


def parse_partitioner(partitioner: str | Partitioner) -> Partitioner | None:
    """Return the function, None for murmur2; raise :class:`~qbus.errors.ConfigError`."""
    if callable(partitioner):
        return partitioner
    if partitioner != "murmur2":
        raise ConfigError(f'partitioner is "murmur2" or a function, not {partitioner!r}')
    return None
