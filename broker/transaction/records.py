"""The records of ``__transaction_state``: Kafka's TransactionLogKey and TransactionLogValue.

A key is a version (0, 2 bytes) and the transactional id. A value is a version (1, 2 bytes) and the
fields below; version 0, of older brokers, is read as well. Tags of Qbus's own count from 10,000:
Kafka's tools pass over them.
"""

import struct
from functools import lru_cache
from typing import Final

from qbus.errors import QbusError, WireError
from qbus.wire import decode, encode
from qbus.wire.declare import Int8, Int16, Int32, Int64, String, Struct, field

from .state import NO_EPOCH, NO_PRODUCER_ID, Place, State, Transaction

_IDS: Final = 20_000  # whose keys are remembered
_PARTITION_SETS: Final = 2_000  # remembered in their encoded form,
_FEW_PARTITIONS: Final = 16  # if they are small: large ones would keep hundreds of megabytes

_VERSION: Final = struct.Struct(">h")
_FIXED: Final = struct.Struct(">hqhib")  # version, producer id, epoch, time-out, state
_TIMES: Final = struct.Struct(">qq")
_LONG: Final = struct.Struct(">q")
_NULL: Final = b"\x00"
_SEVEN_BITS: Final = 0x7F
_MORE: Final = 0x80
_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1
_GROUPS_TAG: Final = 10_000
_LAST_EPOCH_TAG: Final = 10_001
_MALFORMED: Final = (WireError, struct.error, ValueError, LookupError)


class MalformedRecordError(QbusError):
    """A record of the log cannot be read."""


class TransactionLogKey(Struct):
    transactional_id: String = field()


class PartitionsSchema(Struct):
    topic: String = field()
    partition_ids: list[Int32] = field()


class TransactionLogValue(Struct, flexible="1+"):
    producer_id: Int64 = field()
    previous_producer_id: Int64 = field("1+", tag=0, default=-1)
    next_producer_id: Int64 = field("1+", tag=1, default=-1)
    producer_epoch: Int16 = field()
    transaction_timeout_ms: Int32 = field()
    transaction_status: Int8 = field()
    transaction_partitions: list[PartitionsSchema] | None = field()
    transaction_last_update_timestamp_ms: Int64 = field()
    transaction_start_timestamp_ms: Int64 = field()
    client_transaction_version: Int16 = field("1+", tag=2, default=0)
    # Groups whose offsets the transaction commits, where these are in the metadata store.
    groups: list[String] = field("1+", tag=_GROUPS_TAG)
    # The epoch before the last one, which a producer may have that did not hear of the last one.
    last_producer_epoch: Int16 = field("1+", tag=_LAST_EPOCH_TAG, default=-1)


@lru_cache(maxsize=_IDS)
def encode_key(transactional_id: str) -> bytes:
    """The key of a transactional id's records."""
    key = TransactionLogKey(transactional_id=transactional_id)
    return b"".join((_VERSION.pack(_KEY_VERSION), *encode(key, _KEY_VERSION)))


@lru_cache(maxsize=_IDS)
def decode_key(key: bytes) -> str | None:
    """The transactional id; None: it is a record of another kind, of a later version.

    Raises MalformedRecordError.
    """
    try:
        (version,) = _VERSION.unpack_from(key)
        if version != _KEY_VERSION:
            return None
        return decode(TransactionLogKey, version, key[_VERSION.size :]).transactional_id
    except _MALFORMED as error:
        raise MalformedRecordError(f"a key of the transaction log is malformed: {error}") from error


def encode_value(transaction: Transaction) -> bytes:
    """The record that says how a transaction stands: a TransactionLogValue, written field by field.

    That costs a fifth of what it does by way of the message, and is done three times a transaction.
    """
    fixed = _FIXED.pack(
        _VALUE_VERSION,
        transaction.producer_id,
        transaction.epoch,
        transaction.timeout_ms,
        transaction.state,
    )
    is_empty = transaction.state is State.EMPTY
    partitions = _NULL if is_empty else _partitions(transaction.partitions)
    times = _TIMES.pack(transaction.updated_ms, transaction.started_ms)
    return b"".join((fixed, partitions, times, *_tags(transaction)))


def _partitions(partitions: frozenset[Place]) -> bytes:
    if len(partitions) <= _FEW_PARTITIONS:
        return _known_partitions(partitions)
    return _encode_partitions(partitions)


def _encode_partitions(partitions: frozenset[Place]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    out = bytearray(_varint(len(topics) + 1))
    for topic, indexes in topics.items():
        out += _text(topic)
        out += _varint(len(indexes) + 1)
        out += struct.pack(f">{len(indexes)}i", *indexes)
        out += _NULL  # no tags
    return bytes(out)


_known_partitions = lru_cache(maxsize=_PARTITION_SETS)(_encode_partitions)


def _tags(transaction: Transaction) -> list[bytes]:
    """The tagged fields that have not their defaults, behind their number."""
    tags = [_NULL]
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append(b"\x00\x08" + _LONG.pack(transaction.previous_producer_id))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append(b"\x01\x08" + _LONG.pack(transaction.next_producer_id))
    if transaction.client_version:
        tags.append(b"\x02\x02" + _VERSION.pack(transaction.client_version))
    if transaction.groups:
        groups = b"".join(map(_text, sorted(transaction.groups)))
        groups = _varint(len(transaction.groups) + 1) + groups
        tags.append(_varint(_GROUPS_TAG) + _varint(len(groups)) + groups)
    if transaction.last_epoch != NO_EPOCH:
        tags.append(_varint(_LAST_EPOCH_TAG) + b"\x02" + _VERSION.pack(transaction.last_epoch))
    tags[0] = _varint(len(tags) - 1)
    return tags


def _text(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data) + 1) + data


def _varint(number: int) -> bytes:
    """Encode an unsigned varint: seven bits a byte, the least significant first (KIP-482)."""
    out = bytearray()
    while number > _SEVEN_BITS:
        out.append(number & _SEVEN_BITS | _MORE)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    """Read what :func:`encode_value` writes. Raises MalformedRecordError."""
    try:
        (version,) = _VERSION.unpack_from(value)
        if not 0 <= version <= _VALUE_VERSION:
            raise ValueError(f"its version is {version}")
        read = decode(TransactionLogValue, version, value[_VERSION.size :])
        state = State(read.transaction_status)
    except _MALFORMED as error:
        raise MalformedRecordError(
            f"the transaction log's record of {transactional_id!r} is malformed: {error}"
        ) from error
    partitions: set[Place] = {
        (one.topic, index)
        for one in read.transaction_partitions or ()
        for index in one.partition_ids
    }
    return Transaction(
        transactional_id,
        read.producer_id,
        read.producer_epoch,
        state,
        read.transaction_timeout_ms,
        previous_producer_id=read.previous_producer_id,
        next_producer_id=read.next_producer_id,
        last_epoch=read.last_producer_epoch,
        partitions=frozenset(partitions),
        groups=frozenset(read.groups),
        started_ms=read.transaction_start_timestamp_ms,
        updated_ms=read.transaction_last_update_timestamp_ms,
        client_version=read.client_transaction_version,
    )
