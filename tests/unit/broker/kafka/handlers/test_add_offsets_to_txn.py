"""AddOffsetsToTxn at every version."""

from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

from .transaction_broker import FENCED, OLD_FENCED, TX, TransactionBroker, versions


async def add(transactions: TransactionBroker, producer: tuple[int, int], version: int) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=TX, producer_id=producer[0], producer_epoch=producer[1], group_id="g"
    )
    response = await transactions.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, request)
    code: int = response.error_code
    return code


async def test_the_group_becomes_a_part_of_the_transaction(
    transactions: TransactionBroker,
) -> None:
    for version in versions("ADD_OFFSETS_TO_TXN"):
        producer = await transactions.init()
        assert await add(transactions, producer, version) == 0
        described = await transactions.broker.transactions.describe(TX)
        assert (described.groups, described.partitions) == (frozenset({"g"}), frozenset())


async def test_a_fenced_producer_is_told_in_the_words_of_its_version(
    transactions: TransactionBroker,
) -> None:
    producer = await transactions.init()
    await transactions.init()
    for version in versions("ADD_OFFSETS_TO_TXN"):
        code = FENCED if version >= 2 else OLD_FENCED
        assert await add(transactions, producer, version) == code


async def test_one_that_nobody_knows_is_refused(transactions: TransactionBroker) -> None:
    assert await add(transactions, (5, 0), 4) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
