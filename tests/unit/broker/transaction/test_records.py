"""The records of ``__transaction_state``: Kafka's format, byte by byte, and hostile bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.transaction import Place, State, Transaction, records
from qbus.broker.transaction.records import (
    MalformedRecordError,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

IDS = st.integers(-1, 2**63 - 1)
EPOCHS = st.integers(-1, 2**15 - 1)
TIMES = st.integers(-1, 2**62)
NAMES = st.text(min_size=1, max_size=20)
PLACES = st.frozensets(st.tuples(NAMES, st.integers(0, 100)), max_size=8)

TRANSACTIONS = st.builds(
    Transaction,
    NAMES,
    IDS,
    EPOCHS,
    st.sampled_from([state for state in State if state is not State.EMPTY]),
    st.integers(1, 2**31 - 1),
    previous_producer_id=IDS,
    next_producer_id=IDS,
    last_epoch=EPOCHS,
    partitions=PLACES,
    groups=st.frozensets(NAMES, max_size=3),
    started_ms=TIMES,
    updated_ms=TIMES,
    client_version=st.integers(0, 2),
)


def test_large_sets_of_partitions_are_not_kept() -> None:
    known = records._known_partitions.cache_info().currsize
    places: set[Place] = set()
    for index in range(100):
        places.add(("large", index))
        value = encode_value(Transaction("a", 1, 0, State.ONGOING, 1, partitions=frozenset(places)))
        assert decode_value("a", value).partitions == places
    assert records._known_partitions.cache_info().currsize <= known + 16


def test_a_key_is_a_version_and_the_transactional_id() -> None:
    assert encode_key("tx") == bytes.fromhex("0000 0002 7478")
    assert decode_key(encode_key("tx")) == "tx"


def test_a_value_has_kafkas_fields_in_kafkas_order() -> None:
    transaction = Transaction(
        "tx",
        7,
        3,
        State.ONGOING,
        60_000,
        partitions=frozenset({("t", 2), ("t", 0)}),
        started_ms=10,
        updated_ms=11,
    )
    assert encode_value(transaction) == bytes.fromhex(
        "0001"  # version
        "0000000000000007 0003"  # producer id and epoch
        "0000ea60 01"  # time-out, state
        "02 0274 03 00000000 00000002 00"  # one topic with two partitions, no tags
        "000000000000000b 000000000000000a"  # last update, start
        "00"  # no tags: all of them have their defaults
    )


def test_what_kafka_has_no_field_for_is_tagged_far_away() -> None:
    transaction = Transaction(
        "tx", 7, 3, State.ONGOING, 1, groups=frozenset({"g"}), last_epoch=2, client_version=2
    )
    assert encode_value(transaction).endswith(
        bytes.fromhex(
            "03"  # three tagged fields
            "02 02 0002"  # 2: the client's transaction version
            "904e 03 02 0267"  # 10,000: groups
            "914e 02 0002"  # 10,001: the epoch before
        )
    )


def test_one_without_a_transaction_has_null_for_its_partitions() -> None:
    value = encode_value(Transaction("tx", 7, 0, State.EMPTY, 1))
    assert value[17:18] == b"\x00"
    assert decode_value("tx", value).partitions == frozenset()


@given(TRANSACTIONS)
def test_what_is_written_is_read(transaction: Transaction) -> None:
    assert decode_value(transaction.transactional_id, encode_value(transaction)) == transaction
    assert decode_key(encode_key(transaction.transactional_id)) == transaction.transactional_id


def test_a_value_of_an_older_broker_is_read() -> None:
    value = bytes.fromhex(
        "0000 0000000000000007 0003 0000ea60 01"
        "00000001 0001 74 00000002 00000000 00000002"
        "000000000000000b 000000000000000a"
    )
    read = decode_value("tx", value)
    assert (read.producer_id, read.epoch, read.state) == (7, 3, State.ONGOING)
    assert read.partitions == {("t", 0), ("t", 2)}
    assert (read.started_ms, read.updated_ms, read.client_version) == (10, 11, 0)


def test_a_key_of_another_kind_is_none_of_ours() -> None:
    assert decode_key(b"\x00\x07whatever") is None


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x00", b"\x00\x00\x00\x05ab"])
def test_a_key_that_is_cut_is_malformed(key: bytes) -> None:
    with pytest.raises(MalformedRecordError, match="malformed"):
        decode_key(key)


@given(TRANSACTIONS, st.data())
def test_a_value_that_is_cut_is_malformed(transaction: Transaction, data: st.DataObject) -> None:
    value = encode_value(transaction)
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(MalformedRecordError, match="malformed"):
        decode_value("tx", value[:cut])


@pytest.mark.parametrize("version", [b"\x00\x02", b"\xff\xff"])
def test_a_value_of_a_later_version_is_malformed(version: bytes) -> None:
    value = encode_value(Transaction("tx", 7, 0, State.EMPTY, 1))
    with pytest.raises(MalformedRecordError, match="version"):
        decode_value("tx", version + value[2:])


def test_a_state_that_nobody_knows_is_malformed() -> None:
    value = bytearray(encode_value(Transaction("tx", 7, 0, State.EMPTY, 1)))
    value[16] = 99
    with pytest.raises(MalformedRecordError, match="99"):
        decode_value("tx", bytes(value))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_malformed(data: bytes) -> None:
    for read in (decode_key, lambda value: decode_value("tx", value)):
        try:
            read(data)
        except MalformedRecordError:
            continue
