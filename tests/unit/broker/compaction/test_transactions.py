"""Which batches are of aborted transactions, and which markers have nothing left to end."""

from typing import NamedTuple

from qbus.broker.compaction.transactions import Transactions
from qbus.records import BatchHeader, build_batch, read_header

TRANSACTIONAL = 0x10


class Ended(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int


def data(offset: int, producer_id: int) -> BatchHeader:
    batch = build_batch(
        [(b"k", b"v", (), 0)],
        base_offset=offset,
        attributes=TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
    )
    return read_header(batch)


def test_batches_between_the_first_and_the_marker_of_an_aborted_one_are_its() -> None:
    transactions = Transactions([Ended(7, 2, 5)])
    assert not transactions.is_aborted(data(0, 7))
    assert transactions.has_data(data(1, 7), committed=True)
    assert transactions.is_aborted(data(2, 7))
    assert not transactions.is_aborted(data(3, 8))
    assert transactions.is_aborted(data(4, 7))
    assert transactions.has_data(data(5, 7), committed=False)
    assert not transactions.is_aborted(data(6, 7))


def test_a_marker_has_data_only_if_batches_of_its_transaction_came() -> None:
    transactions = Transactions([Ended(7, 2, 5), Ended(7, 6, 9)])
    assert not transactions.has_data(data(1, 7), committed=True)
    assert not transactions.has_data(data(5, 7), committed=False)
    assert transactions.is_aborted(data(8, 7))
    assert transactions.has_data(data(9, 7), committed=False)
    assert not transactions.has_data(data(10, 7), committed=False)
    assert transactions.aborted_at == {9}


def test_producers_are_told_apart() -> None:
    transactions = Transactions([Ended(8, 1, 4), Ended(7, 0, 3)])
    assert transactions.is_aborted(data(0, 7))
    assert transactions.is_aborted(data(1, 8))
    assert transactions.has_data(data(3, 7), committed=False)
    assert transactions.is_aborted(data(3, 8))
    assert transactions.has_data(data(4, 8), committed=False)
    assert not transactions.has_data(data(5, 8), committed=True)
