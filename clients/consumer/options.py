"""The options of a consumer."""

import math
import time
from dataclasses import dataclass
from typing import Literal, get_args

from qbus.errors import ConfigError
from qbus.records.bounds import MAX_RECORDS_SIZE

OffsetReset = Literal["earliest", "latest", "none"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The checked options of :class:`~qbus.clients.Consumer`. Times are in seconds."""

    offset_reset: OffsetReset
    fetch_min_bytes: int
    fetch_max_bytes: int
    partition_max_bytes: int
    prefetch_bytes: int
    fetch_max_wait: float
    max_poll_records: int
    check_crcs: bool
    read_committed: bool
    rack: str | None
    auto_commit: float | None
    consumer_timeout: float | None = None
    batch_max_bytes: int = MAX_RECORDS_SIZE


class Patience:
    """How much longer a reader waits for records: ``seconds`` in a row, or for ever (None)."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._since: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the reader has waited for so long."""
        return self._left() <= 0

    def wait(self, most: float) -> float:
        """Begin or go on to wait; return for how many seconds at once, up to ``most``."""
        if self._since is None:
            self._since = time.monotonic()
        return min(most, self._left())

    def restart(self) -> None:
        """Note that there were records."""
        self._since = None

    def _left(self) -> float:
        if self._seconds is None:
            return math.inf
        return self._seconds - (0 if self._since is None else time.monotonic() - self._since)


def check_options(
    offset_reset: str,
    isolation_level: str,
    consumer_timeout_ms: int | None,
    batch_max_bytes: int = MAX_RECORDS_SIZE,
) -> None:
    """Raise :class:`~qbus.errors.ConfigError` for unknown words, and a time-out that is none."""
    for name, value, allowed in (
        ("offset_reset", offset_reset, get_args(OffsetReset)),
        ("isolation_level", isolation_level, get_args(IsolationLevel)),
    ):
        if value not in allowed:
            raise ConfigError(f"{name} is one of {', '.join(allowed)}, not {value!r}")
    if consumer_timeout_ms is not None and consumer_timeout_ms <= 0:
        raise ConfigError(f"consumer_timeout_ms is above 0, not {consumer_timeout_ms}")
    if batch_max_bytes < 1:
        raise ConfigError(f"batch_max_bytes is above 0, not {batch_max_bytes}")


def limit_of(max_records: int | None, otherwise: int) -> int:
    """Return how many records a poll may return; raise :class:`~qbus.errors.ConfigError` below
    1.
    """
    limit = otherwise if max_records is None else max_records
    if limit < 1:
        raise ConfigError(f"a poll returns at least 1 record, not {limit}")
    return limit
