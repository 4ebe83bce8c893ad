"""ListTransactions at every version: filters by state, producer, age and name."""

from collections.abc import Collection
from typing import Any

import pytest

from qbus.broker.kafka.handlers import list_transactions
from qbus.errors import ErrorCode
from qbus.security.acls import Entry, Operation, Pattern, Permission, ResourceType
from qbus.wire import ApiKey
from qbus.wire.messages.list_transactions import ListTransactionsRequest

from .transaction_broker import TX, TransactionBroker, versions


async def listed(transactions: TransactionBroker, version: int, **filters: Any) -> set[str]:
    response = await transactions.ask(
        ApiKey.LIST_TRANSACTIONS, version, ListTransactionsRequest(**filters)
    )
    assert response.error_code == 0
    return {one.transactional_id for one in response.transaction_states}


async def test_by_state_and_producer(transactions: TransactionBroker) -> None:
    producer = await transactions.init()
    await transactions.init(transactional_id="other")
    await transactions.add(producer, 0)
    for version in versions("LIST_TRANSACTIONS"):
        assert await listed(transactions, version) == {TX, "other"}
        assert await listed(transactions, version, state_filters=["Ongoing"]) == {TX}
        assert await listed(transactions, version, state_filters=["Empty"]) == {"other"}
        assert await listed(transactions, version, producer_id_filters=[producer[0]]) == {TX}
        assert await listed(transactions, version, producer_id_filters=[1]) == set()


async def test_states_that_nobody_knows_are_named(transactions: TransactionBroker) -> None:
    await transactions.init()
    for states, expected in ((["Emtpy"], []), (["Emtpy", "Empty"], [TX])):
        response = await transactions.ask(
            ApiKey.LIST_TRANSACTIONS, 0, ListTransactionsRequest(state_filters=states)
        )
        assert response.unknown_state_filters == ["Emtpy"]
        assert [one.transactional_id for one in response.transaction_states] == expected


async def test_by_how_long_they_are_open(transactions: TransactionBroker) -> None:
    producer = await transactions.init()
    await transactions.init(transactional_id="other")
    await transactions.add(producer, 0)
    assert await listed(transactions, 1, duration_filter=60_000) == set()
    assert await listed(transactions, 1, duration_filter=-1) == {TX, "other"}


async def test_by_name(transactions: TransactionBroker) -> None:
    await transactions.init()
    await transactions.init(transactional_id="pay")
    for pattern, names in (
        (None, {TX, "pay"}),
        ("", {TX, "pay"}),
        ("pay", {"pay"}),  # the whole name
        ("pay.*", {TX, "pay"}),
        ("nobody", set()),
    ):
        assert await listed(transactions, 2, transactional_id_pattern=pattern) == names


async def test_a_pattern_that_is_none_is_refused(transactions: TransactionBroker) -> None:
    request = ListTransactionsRequest(transactional_id_pattern="(")
    response = await transactions.ask(ApiKey.LIST_TRANSACTIONS, 2, request)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_a_pattern_is_compared_only_with_what_the_client_may_describe(
    transactions: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may describe nothing has nothing compiled, and learns nothing of the pattern."""
    compared: list[tuple[str, list[str]]] = []

    async def find(pattern: str, names: Collection[str]) -> frozenset[str]:
        compared.append((pattern, sorted(names)))
        return frozenset(names)

    monkeypatch.setattr(list_transactions, "find_matching", find)
    await transactions.init()
    await transactions.init(transactional_id="other")
    rules = transactions.restrict()
    assert await listed(transactions, 2, transactional_id_pattern="(") == set()
    assert not compared
    entry = Entry("User:*", "*", Operation.DESCRIBE, Permission.ALLOW)
    rules.put(Pattern(ResourceType.TRANSACTIONAL_ID, "other"), [entry])
    assert await listed(transactions, 2, transactional_id_pattern=".*") == {"other"}
    assert compared == [(".*", ["other"])]
