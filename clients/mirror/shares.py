"""How much is asked of the source at a time, so that memory has a bound. Pure.

Half of the memory is for what is on its way from the source, the other half for what waits for the
target: while one half fills, the other one drains.
"""

from typing import NamedTuple

from .config import Transfer

_LEAST = 64 * 1024
_POLL_BYTES = 1024 * 1024
_SMOOTH = 4
"""With a bound on the rate, a fetch brings at most a quarter of a second's worth."""


class Shares(NamedTuple):
    """In bytes: of one fetch; of one partition in it; held of one before it is fetched again."""

    fetch: int
    partition: int
    held: int


def shares(transfer: Transfer, busy: int, brokers: int, rate: int = 0) -> Shares:
    """What each may have while ``busy`` partitions, led by so many brokers, have more to give.

    ``rate`` is the link's bound in bytes per second, 0 for none.
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
    return Shares(fetch, partition, max(half // busy, 1))


def poll_bytes(transfer: Transfer) -> int:
    """What a fetch that waits for new records may bring: who has more is busy from then on."""
    return min(transfer.fetch_bytes, _POLL_BYTES)
