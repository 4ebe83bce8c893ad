"""The sizes of fetches from the source, so that memory is bounded. Pure.

Half of the memory is for fetches in flight, the other half for chunks that wait for the target:
while one half fills, the other one drains.
"""

from typing import NamedTuple

from .config import Transfer

_LEAST = 64 * 1024
_POLL_BYTES = 1024 * 1024
_SMOOTH = 4
"""Under a rate limit, a fetch brings at most a quarter of a second's worth."""


class FetchSizes(NamedTuple):
    """Bytes of one fetch; of one partition in it; held of a partition before the next fetch."""

    fetch: int
    partition: int
    held: int


def fetch_sizes(transfer: Transfer, busy: int, brokers: int, rate: int = 0) -> FetchSizes:
    """Return the sizes while ``busy`` partitions, led by so many brokers, have more records.

    ``rate`` is the link's limit in bytes per second, 0 for none.
    """
    half = transfer.memory_bytes // 2
    busy = max(busy, 1)
    fetches = min(busy, transfer.in_flight * max(brokers, 1))
    fetch = min(transfer.fetch_bytes, half // fetches)
    if rate:
        fetch = min(fetch, rate // _SMOOTH)
    fetch = max(fetch, _LEAST)
    together = -(-busy // fetches)
    partition = min(max(transfer.partition_fetch_bytes, fetch // together), fetch)
    return FetchSizes(fetch, partition, max(half // busy, 1))


def poll_bytes(transfer: Transfer) -> int:
    """Return the size of a fetch that waits for new records; partitions with more become busy."""
    return min(transfer.fetch_bytes, _POLL_BYTES)
