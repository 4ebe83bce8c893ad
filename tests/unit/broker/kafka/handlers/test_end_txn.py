"""EndTxn at every version: from version 5 on each transaction has an epoch of its own."""

from itertools import product

from qbus.broker.transaction import State
from qbus.errors import ErrorCode
from tests.support.waiting import eventually

from .transaction_broker import FENCED, OLD_FENCED, TransactionBroker, versions

EVERY = versions("END_TXN")


async def test_ends_the_transaction(transactions: TransactionBroker) -> None:
    for version, commit in product(EVERY, (True, False)):
        producer_id, epoch = await transactions.init()
        await transactions.add((producer_id, epoch), 0)
        code, *following = await transactions.end(
            (producer_id, epoch), commit=commit, version=version
        )
        assert code == 0
        assert following == ([producer_id, epoch + 1] if version >= 5 else [-1, -1])
        over = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
        await eventually(lambda over=over: transactions.state is over)  # type: ignore[misc]


async def test_a_fenced_producer_is_told_in_the_words_of_its_version(
    transactions: TransactionBroker,
) -> None:
    producer = await transactions.init()
    await transactions.init()
    for version in EVERY:
        code, *_ = await transactions.end(producer, version=version)
        assert code == (FENCED if version >= 2 else OLD_FENCED)


async def test_there_is_nothing_to_commit_without_a_transaction(
    transactions: TransactionBroker,
) -> None:
    producer = await transactions.init()
    for version in EVERY:
        code, *_ = await transactions.end(producer, version=version)
        assert code == ErrorCode.INVALID_TXN_STATE


async def test_one_that_comes_late_never_ends_a_later_transaction(
    transactions: TransactionBroker,
) -> None:
    first = await transactions.init()
    await transactions.add(first, 0)
    _, *second = await transactions.end(first)
    following = second[0], second[1]
    assert await transactions.add(following, 1) == {1: 0}
    for commit in (True, False):
        code, *_ = await transactions.end(first, commit=commit)
        assert code == ErrorCode.PRODUCER_FENCED
    assert transactions.state is State.ONGOING


async def test_partitions_that_nothing_was_written_to_have_their_marker(
    transactions: TransactionBroker,
) -> None:
    producer = await transactions.init()
    await transactions.add(producer, 0, 1)
    await transactions.end(producer)
    await eventually(lambda: transactions.state is State.COMPLETE_COMMIT)
    replicas = transactions.broker.replicas
    ends = [replicas.leader_of("t", index).log.log_end_offset for index in range(3)]
    assert ends == [1, 1, 0]
