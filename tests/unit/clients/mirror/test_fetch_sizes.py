"""How much is asked for at a time: all of the memory is used, and never more."""

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
def test_few_get_much_and_many_get_little(busy: int, brokers: int, fetch: int) -> None:
    assert fetch_sizes(TRANSFER, busy, brokers).fetch == fetch


@pytest.mark.parametrize("busy", [1, 2, 7, 8, 9, 100, 5000])
@pytest.mark.parametrize("brokers", [1, 3])
def test_all_that_may_be_asked_for_at_once_is_half_of_the_memory(busy: int, brokers: int) -> None:
    share = fetch_sizes(TRANSFER, busy, brokers)
    fetches = min(busy, brokers * TRANSFER.in_flight)
    assert share.fetch * fetches <= TRANSFER.memory_bytes // 2
    assert 0 < share.partition <= share.fetch
    assert share.held * busy <= TRANSFER.memory_bytes // 2 + busy


def test_no_fetch_is_larger_than_it_may_be() -> None:
    assert fetch_sizes(Transfer(fetch_bytes=MIB), 1, 1).fetch == MIB
    assert poll_bytes(Transfer(fetch_bytes=MIB // 2)) == MIB // 2


def test_a_slow_link_asks_for_little_at_a_time() -> None:
    assert fetch_sizes(TRANSFER, 1, 1, rate=4 * MIB).fetch == MIB
    assert fetch_sizes(TRANSFER, 1, 1, rate=1).fetch == 64 * 1024
    assert fetch_sizes(TRANSFER, 1, 1, rate=0).fetch == 32 * MIB
