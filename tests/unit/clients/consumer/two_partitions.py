"""A loop over the records of two partitions, for tests."""

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from qbus.clients.consumer.assignment import Assignment
from qbus.clients.consumer.completed_fetch import CompletedFetch
from qbus.clients.consumer.fetch_buffer import FetchBuffer
from qbus.clients.consumer.fetch_cursor import records_of
from qbus.clients.consumer.fetch_responses import FetchResponses
from qbus.clients.types import TopicPartition
from qbus.records import build_batch

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
MANY = 1000
EPOCH = 7


def batch(base_offset: int, count: int) -> bytes:
    records = [(None, b"%d" % (base_offset + i), (), 0) for i in range(count)]
    made = bytearray(build_batch(records, base_offset=base_offset))
    made[12:16] = EPOCH.to_bytes(4, "big")
    return bytes(made)


class Loop:
    """A loop over the records of two partitions, as the consumers have it."""

    def __init__(self) -> None:
        self.assignment = Assignment()
        self.assignment.replace([A, B])
        options = cast("Any", SimpleNamespace(offset_reset="earliest"))
        self.responses = FetchResponses(cast("Any", None), self.assignment, options)
        self.buffer = FetchBuffer(self.assignment, self.responses)
        for state in self.assignment.states.values():
            state.position = 0

    def fetch(self, partition: TopicPartition, *batches: bytes) -> None:
        """An answer has come."""
        state = self.assignment.states[partition]
        offset = state.fetch_offset
        assert offset is not None
        data = memoryview(b"".join(batches))
        state.fetched.append(CompletedFetch(partition, offset, data, check_crcs=True))

    def turn(self, limit: int = MANY) -> Iterator[tuple[int, int]]:
        """What is there, record by record, as partition and offset; with a limit the first run."""
        ends = math.inf if limit == MANY else 0.0
        self.buffer.close_cursors()
        return (
            (record.partition, record.offset)
            for records in records_of(self.buffer.open_cursors(), limit, ends)
            for record in records
        )

    @property
    def positions(self) -> tuple[int | None, int | None]:
        """Where the two are."""
        return self.assignment.position(A), self.assignment.position(B)
