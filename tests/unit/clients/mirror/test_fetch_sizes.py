"""The sizes of fetches use all of the memory, and never more."""

import pytest

from qbus.clients.mirror.config import Transfer
from qbus.clients.mirror.fetch_sizes import fetch_sizes, poll_bytes

MIB = 1024 * 1024
TRANSFER = Transfer(memory_bytes=64 * MIB, fetch_bytes=32 * MIB, in_flight=8)


@pytest.mark.parametrize(
    ("busy", "brokers", "fetch"),
    [
        (0, 0, 32 * MIB),
        (1, 1, 32 * MIB),
        (2, 1, 16 * MIB),
        (8, 1, 4 * MIB),
        (1000, 1, 4 * MIB),
        (1000, 4, 1 * MIB),
    ],
)
def test_few_partitions_get_large_fetches_and_many_small_ones(
    busy: int, brokers: int, fetch: int
) -> None:
    assert fetch_sizes(TRANSFER, busy, brokers).fetch == fetch


@pytest.mark.parametrize("busy", [1, 2, 7, 8, 9, 100, 5000])
@pytest.mark.parametrize("brokers", [1, 3])
def test_all_fetches_in_flight_take_half_of_the_memory(busy: int, brokers: int) -> None:
    share = fetch_sizes(TRANSFER, busy, brokers)
    fetches = min(busy, brokers * TRANSFER.in_flight)
    assert share.fetch * fetches <= TRANSFER.memory_bytes // 2
    assert 0 < share.partition <= share.fetch
    assert share.held * busy <= TRANSFER.memory_bytes // 2 + busy


def test_no_fetch_exceeds_its_limit() -> None:
    assert fetch_sizes(Transfer(fetch_bytes=MIB), 1, 1).fetch == MIB
    assert poll_bytes(Transfer(fetch_bytes=MIB // 2)) == MIB // 2


def test_a_rate_limit_makes_fetches_small() -> None:
    assert fetch_sizes(TRANSFER, 1, 1, rate=4 * MIB).fetch == MIB
    assert fetch_sizes(TRANSFER, 1, 1, rate=1).fetch == 64 * 1024
    assert fetch_sizes(TRANSFER, 1, 1, rate=0).fetch == 32 * MIB
