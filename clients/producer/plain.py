"""The commonest Produce request and its answer, without a message for each of their parts.

That is one batch to one partition, stored, in the versions that are flexible and name topics. All
else goes the general way (:mod:`qbus.wire`), which writes and reads the same bytes.
"""

import struct
from struct import Struct
from typing import Final

from qbus.errors import WireError
from qbus.wire import ApiKey, Part
from qbus.wire.primitives import COPY_BELOW, string_length, uvarint

from ..types import TopicPartition
from .batch import Stored

_FIRST_VERSION: Final = 9
_LAST_VERSION: Final = 12
_HEADER: Final = Struct(">ihhih")  # frame length, API key, version, correlation id, client id's
_BODY: Final = Struct(">hiB")  # acks, time-out, number of topics plus one
_PARTITION: Final = Struct(">Bi")  # number of partitions plus one, the partition
_ANSWER: Final = Struct(">ihqqqiiB")
"""Partition, error, offset, time, log start; no blamed records, message, tags (of it, the topic);
throttling; no tags.
"""
_NOTHING_MORE: Final = 0x01000000
_ONE: Final = b"\2"
_NO_TAGS: Final = b"\0\0\0"
"""Of the partition, the topic, the request."""
_CORRELATION: Final = 4


def is_plain(version: int) -> bool:
    """Whether requests and answers of a version have the form of these."""
    return _FIRST_VERSION <= version <= _LAST_VERSION


def plain_request(
    version: int,
    correlation_id: int,
    client_id: str,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    partition: TopicPartition,
    records: bytearray,
) -> list[Part]:
    """Return the whole frame, its length included, in parts around large records.

    Raises :class:`~qbus.errors.WireError` for what does not fit its field.
    """
    topic, index = partition
    size = len(records)
    try:
        name = client_id.encode()
        after_name = b"\0" + (b"\0" if transactional_id is None else _compact(transactional_id))
        place = _compact(topic) + _PARTITION.pack(2, index) + uvarint(size + 1)
        length = _HEADER.size + len(name) + len(after_name) + _BODY.size + len(place) + size
        head = bytearray(
            _HEADER.pack(
                length + len(_NO_TAGS) - _CORRELATION,
                int(ApiKey.PRODUCE),
                version,
                correlation_id,
                len(name),
            )
        )
        head += name
        head += after_name
        head += _BODY.pack(acks, timeout_ms, 2)
        head += place
    except (struct.error, UnicodeEncodeError) as error:
        raise WireError(f"a Produce request cannot be written: {error}") from error
    if size >= COPY_BELOW:
        return [head, records, _NO_TAGS]
    head += records
    head += _NO_TAGS
    return [head]


def plain_answer(frame: memoryview, partition: TopicPartition) -> tuple[Stored, int] | None:
    """Read a response frame (without its length), if it says that one batch is stored, and no more.

    Returns where, and for how many milliseconds the broker asks to send nothing more.
    """
    topic, index = partition
    before = b"\0" + _ONE + _compact(topic) + _ONE
    begin = _CORRELATION + len(before)
    if len(frame) != begin + _ANSWER.size or frame[_CORRELATION:begin] != before:
        return None
    found, error, offset, time, _, rest, throttle_ms, tags = _ANSWER.unpack_from(frame, begin)
    if found != index or error or rest != _NOTHING_MORE or tags:
        return None
    return Stored(offset, time), throttle_ms


def _compact(text: str) -> bytes:
    data = text.encode()
    return string_length(len(data) + 1) + data
