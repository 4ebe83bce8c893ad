"""Mirrors' logs: appending to them as a mirror does, and what is in them."""

from typing import Any

import pytest

from qbus.broker.log import AppendInfo, Log, Provenance
from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader, iter_batches, read_header
from qbus.records.header import write_header

from .test_following import content, joined

EPOCH = 4
"""In which the log is led."""


def put(
    log: Log, *batches: memoryview, follows: int | None = None, start: int = -1, **rest: Any
) -> AppendInfo:
    """Append what the source has at the end of the log."""
    follows = log.log_end_offset if follows is None else follows
    said = Provenance(**{"source": "a", "topic_id": "id"} | rest, follows=follows)
    sent = memoryview(bytearray(joined(*batches)))
    return log.append_mirrored(sent, said._replace(log_start_offset=start), EPOCH)


def refused(log: Log, *batches: memoryview, **rest: Any) -> ErrorCode:
    """With what :func:`put` is refused, which changes nothing."""
    before = content(log), log.log_end_offset
    with pytest.raises(ApiError) as refusal:
        put(log, *batches, **rest)
    assert (content(log), log.log_end_offset) == before
    return refusal.value.code


def edited(made: memoryview, **fields: int) -> memoryview:
    """``made`` with other fields in its header, and its sum right."""
    data = bytearray(made)
    write_header(data, read_header(data)._replace(**fields))
    return memoryview(data)


def headers(log: Log) -> list[BatchHeader]:
    """Of every batch that a reader comes to."""
    return [header for header, _ in iter_batches(content(log))]


def spans(log: Log) -> list[tuple[int, int]]:
    """First and last offset of each."""
    return [(header.base_offset, header.last_offset) for header in headers(log)]
