"""Quotas as administrators ask for them: whom they are for, filters, and changes (KIP-546)."""

from collections.abc import Sequence

import pytest

from qbus.broker.quotas.administration import (
    Change,
    Filter,
    MatchType,
    describe,
    edit,
    make_entity,
    parts,
)
from qbus.errors import ApiError, ErrorCode
from qbus.metadata.client_quotas import DEFAULT, QuotaEntity

EXACT, BY_DEFAULT, ANY = MatchType.EXACT, MatchType.DEFAULT, MatchType.ANY
ONE = {"producer_byte_rate": 1.0}

USER = QuotaEntity("u")
USERS = QuotaEntity(DEFAULT)
CLIENT = QuotaEntity(None, "c")
BOTH = QuotaEntity("u", "c")
BOTH_DEFAULT = QuotaEntity("u", DEFAULT)
ADDRESS = QuotaEntity(ip="10.0.0.1")
ALL = dict.fromkeys((USER, USERS, CLIENT, BOTH, BOTH_DEFAULT, ADDRESS), ONE)


def found(filters: Sequence[Filter], *, strict: bool = False) -> set[QuotaEntity]:
    return {entity for entity, _ in describe(ALL, filters, strict=strict)}


@pytest.mark.parametrize(
    ("filters", "strict", "expected"),
    [
        ([], False, {*ALL}),
        ([], True, set()),
        ([Filter("user", EXACT, "u")], False, {USER, BOTH, BOTH_DEFAULT}),
        ([Filter("user", EXACT, "u")], True, {USER}),
        ([Filter("user", BY_DEFAULT, None)], False, {USERS}),
        ([Filter("user", ANY, None)], True, {USER, USERS}),
        ([Filter("client-id", EXACT, "c")], False, {CLIENT, BOTH}),
        ([Filter("client-id", BY_DEFAULT, None)], False, {BOTH_DEFAULT}),
        (
            [Filter("user", EXACT, "u"), Filter("client-id", ANY, None)],
            True,
            {BOTH, BOTH_DEFAULT},
        ),
        ([Filter("ip", EXACT, "10.0.0.1")], True, {ADDRESS}),
        ([Filter("ip", EXACT, "::ffff:10.0.0.1")], True, {ADDRESS}),
        ([Filter("ip", ANY, None)], False, {ADDRESS}),
        ([Filter("user", EXACT, "nobody")], False, set()),
    ],
)
def test_filters_find_what_they_say(
    filters: list[Filter], strict: bool, expected: set[QuotaEntity]
) -> None:
    assert found(filters, strict=strict) == expected


@pytest.mark.parametrize(
    ("filters", "code"),
    [
        ([Filter("", EXACT, "u")], ErrorCode.INVALID_REQUEST),
        ([Filter("group", EXACT, "u")], ErrorCode.UNSUPPORTED_VERSION),
        ([Filter("user", EXACT, "u"), Filter("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([Filter("user", 9, "u")], ErrorCode.INVALID_REQUEST),
        ([Filter("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([Filter("user", BY_DEFAULT, "u")], ErrorCode.INVALID_REQUEST),
        ([Filter("user", ANY, "u")], ErrorCode.INVALID_REQUEST),
        ([Filter("ip", ANY, None), Filter("user", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_mean_nothing_are_refused(filters: list[Filter], code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        found(filters)
    assert refused.value.code is code


def test_entities_are_found_in_a_fixed_order() -> None:
    places = [entity.place for entity, _ in describe(ALL, [], strict=False)]
    assert places == sorted(places)


@pytest.mark.parametrize("entity", [*ALL, QuotaEntity(ip=DEFAULT), QuotaEntity(DEFAULT, DEFAULT)])
def test_an_entity_is_said_and_read_alike(entity: QuotaEntity) -> None:
    assert make_entity(parts(entity)) == entity


@pytest.mark.parametrize(
    "named",
    [
        [],
        [("group", "g")],
        [("user", "")],
        [("user", "u"), ("user", "v")],
        [("ip", "10.0.0.1"), ("user", "u")],
        [("ip", "host.example")],
        [("ip", "10.0.0.256")],
    ],
)
def test_entities_that_there_are_not_are_refused(named: list[tuple[str, str | None]]) -> None:
    with pytest.raises(ApiError) as refused:
        make_entity(named)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_changes_keep_what_is_no_quota() -> None:
    current = {"SCRAM-SHA-256": "salt=x", "producer_byte_rate": "1", "consumer_byte_rate": "2"}
    edited = edit(
        USER,
        current,
        [
            Change("producer_byte_rate", 1048576.0, False),
            Change("consumer_byte_rate", 0.0, True),
            Change("request_percentage", 12.5, False),
            Change("controller_mutation_rate", 0.0, True),
        ],
    )
    assert edited == {
        "SCRAM-SHA-256": "salt=x",
        "producer_byte_rate": "1048576",
        "request_percentage": "12.5",
    }


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (USER, "connection_creation_rate", 1.0),
        (USER, "SCRAM-SHA-256", 1.0),
        (ADDRESS, "producer_byte_rate", 1.0),
        (USER, "producer_byte_rate", 0.0),
        (USER, "producer_byte_rate", -1.0),
        (USER, "producer_byte_rate", 1.5),
        (USER, "producer_byte_rate", 1e19),
        (USER, "producer_byte_rate", float("nan")),
        (USER, "request_percentage", float("inf")),
        (ADDRESS, "connection_creation_rate", 2.0**31),
    ],
)
def test_values_that_no_quota_can_have_are_refused(
    entity: QuotaEntity, key: str, value: float
) -> None:
    with pytest.raises(ApiError) as refused:
        edit(entity, {}, [Change(key, value, False)])
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert key in str(refused.value)
