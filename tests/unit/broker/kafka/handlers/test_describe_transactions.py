"""DescribeTransactions: how transactions stand."""

from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.describe_transactions import DescribeTransactionsRequest

from .transaction_broker import TX, TransactionBroker


async def test_tells_everything_of_an_open_transaction(transactions: TransactionBroker) -> None:
    producer = await transactions.init()
    await transactions.add(producer, 0, 2)
    request = DescribeTransactionsRequest(transactional_ids=[TX, "unknown", ""])
    response = await transactions.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
    known, unknown, empty = response.transaction_states
    assert (known.error_code, known.transactional_id) == (0, TX)
    assert (known.producer_id, known.producer_epoch) == producer
    assert known.transaction_state == "Ongoing"
    assert known.transaction_timeout_ms == 60_000
    assert known.transaction_start_time_ms > 0
    assert [(one.topic, one.partitions) for one in known.topics] == [("t", [0, 2])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST


async def test_one_that_has_not_begun_has_no_time_and_no_partitions(
    transactions: TransactionBroker,
) -> None:
    await transactions.init()
    request = DescribeTransactionsRequest(transactional_ids=[TX])
    response = await transactions.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
    (known,) = response.transaction_states
    assert known.transaction_state == "Empty"
    assert known.transaction_start_time_ms == -1
    assert known.topics == []
