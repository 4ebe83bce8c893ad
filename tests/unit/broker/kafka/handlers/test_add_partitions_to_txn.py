"""AddPartitionsToTxn at every version: of producers (0 to 3), and of brokers (4 and 5)."""

from typing import Any

from qbus.broker.transaction import State
from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

from .transaction_broker import FENCED, OLD_FENCED, TX, TransactionBroker, versions

OF_PRODUCERS = [version for version in versions("ADD_PARTITIONS_TO_TXN") if version < 4]
OF_BROKERS = [version for version in versions("ADD_PARTITIONS_TO_TXN") if version >= 4]


def asked(producer: tuple[int, int], *indexes: int, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "transactional_id": TX,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "topics": [AddPartitionsToTxnTopic(name="t", partitions=list(indexes))],
    } | changes
    return AddPartitionsToTxnTransaction(**fields)


async def answers(
    transactions: TransactionBroker, version: int, *questions: Any
) -> list[dict[Any, int]]:
    """What brokers are told: codes by partition and by group, of each question."""
    request = AddPartitionsToTxnRequest(transactions=list(questions))
    response = await transactions.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, request)
    assert response.error_code == 0
    found = []
    for question, result in zip(questions, response.results_by_transaction, strict=True):
        assert result.transactional_id == question.transactional_id
        codes: dict[Any, int] = {
            one.partition_index: one.partition_error_code
            for topic in result.topic_results
            for one in topic.results_by_partition
        }
        codes |= {one.group_id: one.error_code for one in result.group_results}
        found.append(codes)
    return found


async def test_partitions_of_a_producer_are_added(transactions: TransactionBroker) -> None:
    for version in OF_PRODUCERS:
        producer = await transactions.init()
        assert await transactions.add(producer, 0, 2, version=version) == {0: 0, 2: 0}
        described = await transactions.broker.transactions.describe(TX)
        assert described.partitions == {("t", 0), ("t", 2)}


async def test_a_fenced_producer_is_told_in_the_words_of_its_version(
    transactions: TransactionBroker,
) -> None:
    producer = await transactions.init()
    await transactions.init()
    for version in OF_PRODUCERS:
        code = FENCED if version >= 2 else OLD_FENCED
        assert await transactions.add(producer, 0, 1, version=version) == {0: code, 1: code}


async def test_all_are_added_or_none(transactions: TransactionBroker) -> None:
    producer = await transactions.init()
    assert await transactions.add(producer, 0, 7) == {
        0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert transactions.state is State.EMPTY


async def test_producers_do_not_write_to_topics_of_the_systems_own(
    transactions: TransactionBroker,
) -> None:
    producer = await transactions.init()
    for topic in ("__transaction_state", "__consumer_offsets"):
        refused = await transactions.add(producer, 0, topic=topic)
        assert refused == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}


async def test_brokers_add_partitions_of_many_transactions(
    transactions: TransactionBroker,
) -> None:
    for version in OF_BROKERS:
        first = await transactions.init()
        second = await transactions.init(transactional_id="other")
        questions = asked(first, 0, 1), asked(second, 2, transactional_id="other")
        assert await answers(transactions, version, *questions) == [{0: 0, 1: 0}, {2: 0}]
        assert transactions.state is State.ONGOING


async def test_brokers_are_told_what_is_no_part_of_the_transaction(
    transactions: TransactionBroker,
) -> None:
    producer = await transactions.init()
    await transactions.add(producer, 0)
    question = asked(producer, 0, 1, verify_only=True)
    for version in OF_BROKERS:
        missing = ErrorCode.TRANSACTION_ABORTABLE if version >= 5 else ErrorCode.INVALID_TXN_STATE
        assert await answers(transactions, version, question) == [{0: 0, 1: missing}]


async def test_one_that_is_refused_hinders_no_other(transactions: TransactionBroker) -> None:
    producer = await transactions.init()
    unknown = asked((9, 0), 0, transactional_id="unknown")
    fenced = asked((producer[0], 7), 1)
    assert await answers(transactions, 5, unknown, fenced, asked(producer, 2)) == [
        {0: ErrorCode.INVALID_PRODUCER_ID_MAPPING},
        {1: ErrorCode.PRODUCER_FENCED},
        {2: 0},
    ]


async def test_groups_are_added_and_looked_for_likewise(transactions: TransactionBroker) -> None:
    producer = await transactions.init()
    looked_for = asked(producer, 0, verify_only=True, groups=["g"])
    assert await answers(transactions, 5, looked_for) == [
        {0: ErrorCode.TRANSACTION_ABORTABLE, "g": ErrorCode.TRANSACTION_ABORTABLE}
    ]
    added = asked(producer, groups=["g"], topics=[])
    assert await answers(transactions, 5, added) == [{"g": 0}]
    assert await answers(transactions, 5, looked_for) == [
        {0: ErrorCode.TRANSACTION_ABORTABLE, "g": 0}
    ]
