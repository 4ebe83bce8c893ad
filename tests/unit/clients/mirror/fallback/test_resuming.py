"""A partition goes on behind the last copy at the target, wherever in its log that is."""

from collections.abc import AsyncIterator, Mapping

import pytest

from qbus.clients import EARLIEST, OffsetAndTimestamp, TopicPartition
from qbus.clients.mirror.fallback import resuming as module
from qbus.clients.mirror.fallback.resuming import Found, find_resume
from qbus.clients.mirror.fallback.stamp import Stamp, origin_of, stamped
from qbus.records import BatchHeader, build_batch, read_header, set_base_offset

WHERE = TopicPartition("a.orders", 0)
HERE = origin_of("a", "orders")


class Log:
    """A partition of the target: a batch for each record."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.batches: list[bytearray] = []
        self.read = 0

    def reproduced(self, offset: int, topic_id: str = "") -> None:
        self._add(stamped((), HERE, Stamp(offset, topic_id)))

    def other(self, count: int = 1) -> None:
        for _ in range(count):
            self._add([("x", b"y")])

    def _add(self, headers: object) -> None:
        batch = bytearray(build_batch([(None, b"v", headers, 1)]))  # type: ignore[list-item]
        set_base_offset(batch, self.start + len(self.batches), 0)
        self.batches.append(batch)

    async def list_offsets(
        self, _: object, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        end = self.start + len(self.batches)
        return {
            where: OffsetAndTimestamp(self.start if time == EARLIEST else end, -1)
            for where, time in times.items()
        }

    async def read_batches(
        self, _: object, where: TopicPartition, start: int, end: int
    ) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        for batch in self.batches[start - self.start : end - self.start]:
            self.read += 1
            yield read_header(batch), memoryview(batch)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log(start=1000)
    monkeypatch.setattr(module, "list_offsets", log.list_offsets)
    monkeypatch.setattr(module, "read_batches", log.read_batches)
    return log


async def found() -> Found:
    return await find_resume(None, WHERE, HERE)  # type: ignore[arg-type]


async def test_the_last_record_usually_tells_the_origin(log: Log) -> None:
    for offset in range(500):
        log.reproduced(offset)
    assert await found() == Found(500, is_empty=False)
    assert log.read == 1


@pytest.mark.parametrize("others", [1, 15, 16, 17, 300])
async def test_records_of_others_are_skipped_backwards(log: Log, others: int) -> None:
    log.reproduced(7)
    log.reproduced(8)
    log.other(others)
    assert await found() == Found(9, is_empty=False)


async def test_a_topic_of_others_holds_no_copy(log: Log) -> None:
    log.other(40)
    assert await found() == Found(None, is_empty=False)


async def test_an_empty_topic_is_reported_as_empty(log: Log) -> None:
    assert await found() == Found(None, is_empty=True)


async def test_the_furthest_of_unordered_copies_counts(log: Log) -> None:
    log.other()
    for offset in (5, 9, 7):
        log.reproduced(offset)
    log.other(2)
    assert await found() == Found(10, is_empty=False)


async def test_the_furthest_copy_tells_the_topic_id(log: Log) -> None:
    log.reproduced(5, "old")
    log.reproduced(6, "new")
    log.other()
    assert await found() == Found(7, is_empty=False, topic_id="new")
