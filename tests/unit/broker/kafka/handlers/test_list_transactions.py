"""ListTransactions at every version: filters by state, producer, age and name."""

from typing import Any

import pytest

from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.list_transactions import ListTransactionsRequest

from .transaction_broker import TX, TransactionBroker, versions


async def listed(transactions: TransactionBroker, version: int, **filters: Any) -> set[str]:
    response = await transactions.ask(
        ApiKey.LIST_TRANSACTIONS, version, ListTransactionsRequest(**filters)
    )
    assert response.error_code == 0
    return {one.transactional_id for one in response.transaction_states}


@pytest.mark.parametrize("version", versions("LIST_TRANSACTIONS"))
async def test_by_state_and_producer(transactions: TransactionBroker, version: int) -> None:
    producer = await transactions.init()
    await transactions.init(transactional_id="other")
    await transactions.add(producer, 0)
    assert await listed(transactions, version) == {TX, "other"}
    assert await listed(transactions, version, state_filters=["Ongoing"]) == {TX}
    assert await listed(transactions, version, state_filters=["Empty"]) == {"other"}
    assert await listed(transactions, version, producer_id_filters=[producer[0]]) == {TX}
    assert await listed(transactions, version, producer_id_filters=[1]) == set()


@pytest.mark.parametrize("version", versions("LIST_TRANSACTIONS"))
async def test_states_that_nobody_knows_are_named(
    transactions: TransactionBroker, version: int
) -> None:
    await transactions.init()
    for states, expected in ((["Emtpy"], []), (["Emtpy", "Empty"], [TX])):
        response = await transactions.ask(
            ApiKey.LIST_TRANSACTIONS, version, ListTransactionsRequest(state_filters=states)
        )
        assert response.unknown_state_filters == ["Emtpy"]
        assert [one.transactional_id for one in response.transaction_states] == expected


async def test_by_how_long_they_are_open(transactions: TransactionBroker) -> None:
    producer = await transactions.init()
    await transactions.init(transactional_id="other")
    await transactions.add(producer, 0)
    assert await listed(transactions, 1, duration_filter=60_000) == set()
    assert await listed(transactions, 1, duration_filter=-1) == {TX, "other"}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (None, {TX, "pay"}),
        ("", {TX, "pay"}),
        ("pay", {"pay"}),  # the whole name
        ("pay.*", {TX, "pay"}),
        ("nobody", set()),
    ],
)
async def test_by_name(
    transactions: TransactionBroker, pattern: str | None, names: set[str]
) -> None:
    await transactions.init()
    await transactions.init(transactional_id="pay")
    assert await listed(transactions, 2, transactional_id_pattern=pattern) == names


async def test_a_pattern_that_is_none_is_refused(transactions: TransactionBroker) -> None:
    request = ListTransactionsRequest(transactional_id_pattern="(")
    response = await transactions.ask(ApiKey.LIST_TRANSACTIONS, 2, request)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
