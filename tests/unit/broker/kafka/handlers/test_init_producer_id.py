"""InitProducerId at every version: who a producer is, with and without transactions."""

import pytest

from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.init_producer_id import InitProducerIdRequest

from .transaction_broker import FENCED, OLD_FENCED, TX, TransactionBroker, versions

EVERY = versions("INIT_PRODUCER_ID")


@pytest.mark.parametrize("version", EVERY)
async def test_each_idempotent_producer_gets_an_id_of_its_own(
    transactions: TransactionBroker, version: int
) -> None:
    first = await transactions.init(version, transactional_id=None)
    second = await transactions.init(version, transactional_id=None)
    assert first[0] != second[0]
    assert (first[1], second[1]) == (0, 0)


@pytest.mark.parametrize("version", EVERY)
async def test_the_next_one_with_a_transactional_id_gets_the_next_epoch(
    transactions: TransactionBroker, version: int
) -> None:
    producer_id, epoch = await transactions.init(version)
    assert epoch == 0
    assert await transactions.init(version) == (producer_id, 1)


@pytest.mark.parametrize("version", [version for version in EVERY if version >= 3])
async def test_one_that_was_fenced_is_told_in_the_words_of_its_version(
    transactions: TransactionBroker, version: int
) -> None:
    producer_id, epoch = await transactions.init()
    await transactions.init()
    request = InitProducerIdRequest(
        transactional_id=TX,
        transaction_timeout_ms=1000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    response = await transactions.ask(ApiKey.INIT_PRODUCER_ID, version, request)
    assert response.error_code == (FENCED if version >= 4 else OLD_FENCED)
    assert (response.producer_id, response.producer_epoch) == (-1, -1)


@pytest.mark.parametrize(
    ("name", "timeout_ms", "producer", "code"),
    [
        ("", 1000, (-1, -1), ErrorCode.INVALID_REQUEST),
        (TX, 0, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (TX, 2**31 - 1, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (TX, 1000, (5, -1), ErrorCode.INVALID_REQUEST),
        (TX, 1000, (-1, 5), ErrorCode.INVALID_REQUEST),
        (TX, 1000, (-2, 0), ErrorCode.INVALID_REQUEST),
        (None, 1000, (5, -1), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_makes_no_sense_is_refused(
    transactions: TransactionBroker,
    name: str | None,
    timeout_ms: int,
    producer: tuple[int, int],
    code: ErrorCode,
) -> None:
    request = InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )
    response = await transactions.ask(ApiKey.INIT_PRODUCER_ID, 5, request)
    assert response.error_code == code
