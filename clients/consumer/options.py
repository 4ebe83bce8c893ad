"""What can be chosen about a consumer."""

from dataclasses import dataclass
from typing import Literal

OffsetReset = Literal["earliest", "latest", "none"]


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The options of :class:`~qbus.clients.Consumer`. Times are in seconds."""

    offset_reset: OffsetReset
    fetch_min_bytes: int
    fetch_max_bytes: int
    partition_max_bytes: int
    fetch_max_wait: float
    max_poll_records: int
    check_crcs: bool
    auto_commit: float | None
