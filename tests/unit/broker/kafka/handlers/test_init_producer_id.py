"""InitProducerId at every version: who a producer is, with and without transactions."""

from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.init_producer_id import InitProducerIdRequest

from .transaction_broker import FENCED, OLD_FENCED, TX, TransactionBroker, versions

EVERY = versions("INIT_PRODUCER_ID")


async def test_each_idempotent_producer_gets_an_id_of_its_own(
    transactions: TransactionBroker,
) -> None:
    identities = [await transactions.init(version, transactional_id=None) for version in EVERY]
    assert len({producer_id for producer_id, _ in identities}) == len(EVERY)
    assert {epoch for _, epoch in identities} == {0}


async def test_the_next_one_with_a_transactional_id_gets_the_next_epoch(
    transactions: TransactionBroker,
) -> None:
    identities = [await transactions.init(version) for version in EVERY]
    assert [epoch for _, epoch in identities] == list(range(len(EVERY)))
    assert len({producer_id for producer_id, _ in identities}) == 1


async def test_one_that_was_fenced_is_told_in_the_words_of_its_version(
    transactions: TransactionBroker,
) -> None:
    producer_id, epoch = await transactions.init()
    await transactions.init()
    request = InitProducerIdRequest(
        transactional_id=TX,
        transaction_timeout_ms=1000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    for version in EVERY[3:]:
        response = await transactions.ask(ApiKey.INIT_PRODUCER_ID, version, request)
        assert response.error_code == (FENCED if version >= 4 else OLD_FENCED)
        assert (response.producer_id, response.producer_epoch) == (-1, -1)


async def test_what_makes_no_sense_is_refused(transactions: TransactionBroker) -> None:
    for name, timeout_ms, producer, code in (
        ("", 1000, (-1, -1), ErrorCode.INVALID_REQUEST),
        (TX, 0, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (TX, 2**31 - 1, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (TX, 1000, (5, -1), ErrorCode.INVALID_REQUEST),
        (TX, 1000, (-1, 5), ErrorCode.INVALID_REQUEST),
        (TX, 1000, (-2, 0), ErrorCode.INVALID_REQUEST),
        (None, 1000, (5, -1), ErrorCode.INVALID_REQUEST),
    ):
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        response = await transactions.ask(ApiKey.INIT_PRODUCER_ID, 5, request)
        assert response.error_code == code
