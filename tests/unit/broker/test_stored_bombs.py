"""Bombs that a log holds already, of before there were bounds: every reader passes them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qbus.broker.delay.held import HeldCache, HeldRecords
from qbus.broker.disque.reading import read_one, read_some
from qbus.broker.log import Log, LogConfig, OsFiles
from qbus.broker.queues.batches import BatchCache, LogBatches, StoredBatch
from qbus.clock import ManualClock
from qbus.errors import CorruptBatch, OversizedBatch
from qbus.records import Compression, build_batch, read_header
from qbus.records.header import hide_delayed
from tests.support.bombs import DELAYED, batch_of_headers, large_batch
from tests.support.logs import NOW_MS
from tests.unit.broker.compaction.keyed import KeyedLog
from tests.unit.broker.delay.delays import HOUR, Line, WallClock

MIB = 1 << 20

BOMBS: dict[str, Callable[[], bytes]] = {
    "bytes": lambda: large_batch(Compression.ZSTD, 17 * MIB, DELAYED),
    "headers": lambda: batch_of_headers(20_000),
    "plain headers": lambda: batch_of_headers(20_000, Compression.NONE),
}


@pytest.fixture(params=BOMBS)
def bomb(request: pytest.FixtureRequest) -> bytearray:
    return bytearray(BOMBS[request.param]())


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log.open(str(tmp_path / "t-0"), LogConfig(), ManualClock(), OsFiles())
    yield log
    log.close()


def small(value: bytes, timestamp: int = NOW_MS) -> bytearray:
    return build_batch([(b"k", value, (), timestamp)])


async def test_recovery_ignores_one_and_says_so(
    tmp_path: Path, bomb: bytearray, caplog: pytest.LogCaptureFixture
) -> None:
    line = Line(tmp_path / "t-0", WallClock())
    hide_delayed(bomb, line.clock.time_ms())
    line.send(b"before", delay="1h")
    line.append_own(bomb, 1)
    line.send(b"behind", delay="1h")
    for _ in range(2):
        assert "hidden batch at offset 1 is ignored" in caplog.text
        assert line.fold.pending == 2
        caplog.clear()
        line.reopen(clean=False)
    line.clock.advance(HOUR)
    assert await line.deliver() == 2
    line.service.stop()
    line.log.close()


def test_a_held_record_in_one_cannot_be_read(log: Log, bomb: bytearray) -> None:
    hide_delayed(bomb, NOW_MS)
    log.append_own(bomb, 0)
    held = HeldRecords(log, HeldCache())
    if b"\0\1" * 20_000 in bomb:  # a record is cut out by its length, and then decoded
        with pytest.raises(OversizedBatch):
            held.read(0, wait=True)
    else:
        with pytest.raises(CorruptBatch):
            held.read(0, wait=True)


def test_a_time_is_looked_up_beside_one(
    log: Log, bomb: bytearray, caplog: pytest.LogCaptureFixture
) -> None:
    log.append(small(b"before", NOW_MS - 10), 0)
    log.append(bomb, 0)
    log.append(small(b"behind", NOW_MS + 10), 0)
    found = log.offset_for_timestamp(NOW_MS)
    assert found is not None
    assert found.offset == 1
    assert "no record of the batch at offset 1 is looked up" in caplog.text
    found = log.offset_for_timestamp(NOW_MS + 5)
    assert found is not None
    assert found.offset == 2


def test_compaction_keeps_one_as_it_is(
    tmp_path: Path, bomb: bytearray, caplog: pytest.LogCaptureFixture
) -> None:
    keyed = KeyedLog(tmp_path / "t-0", segment_bytes=MIB)
    keyed.put((b"a", b"1"))
    keyed.log.append(bytearray(bomb), 0)
    keyed.put((b"a", b"2"))
    keyed.roll()
    keyed.clean()
    offsets = [header.base_offset for header, _ in keyed.batches()]
    assert offsets == [1, 2]
    assert keyed.batches()[0][0].crc == read_header(bomb).crc
    assert "keeps the batch at offset 1 as it is" in caplog.text
    assert keyed.log.corruptions == ()
    keyed.log.close()


class TestQueues:
    """Batches as share groups and jobs read them."""

    def test_the_event_loop_leaves_what_is_large_to_a_thread(self, log: Log) -> None:
        log.append(bytearray(small(b"small")), 0)
        log.append(bytearray(large_batch(Compression.ZSTD, MIB)), 0)
        batches = LogBatches(log, BatchCache())
        found = batches.load(0, log.log_end_offset, wait=True)
        assert [stretch.first for stretch in found] == [0, 1]
        found = batches.load(0, log.log_end_offset, wait=False)
        assert [stretch.first for stretch in found] == [0]
        with pytest.raises(BlockingIOError):
            batches.load(1, log.log_end_offset, wait=False)
        with pytest.raises(BlockingIOError):
            batches.load_batch(1, wait=False)

    def test_few_large_batches_are_read_at_once(self, log: Log) -> None:
        for _ in range(20):
            log.append(bytearray(large_batch(Compression.ZSTD, 8 * MIB)), 0)
        batches = LogBatches(log, BatchCache())
        found = batches.load(0, log.log_end_offset, wait=True)
        assert len(found) < 4

    def test_a_record_of_too_many_headers_is_broken(self) -> None:
        batch = batch_of_headers(20_000)
        stored = StoredBatch(read_header(batch), batch)
        with pytest.raises(CorruptBatch):
            stored.records(0, 0)


def test_a_look_at_jobs_passes_one(
    log: Log, bomb: bytearray, caplog: pytest.LogCaptureFixture
) -> None:
    log.append(small(b"before"), 0)
    log.append(bomb, 0)
    log.append(small(b"behind"), 0)
    found, end = read_some(log, "t", 0, 0, 3)
    assert [record.value for record in found] == [b"before", b"behind"]
    assert end == 3
    assert "t-0: passed over the batch at 1" in caplog.text
    assert read_one(log, "t", 0, 1, 3) is None


def test_a_look_at_jobs_goes_on_where_much_was_decoded(log: Log) -> None:
    for _ in range(5):
        log.append(bytearray(large_batch(Compression.ZSTD, 10_000, records=500)), 0)
    seen, offset, most = 0, 0, 0
    while offset < 2_500:
        found, offset = read_some(log, "t", 0, offset, 2_500, 100_000)
        seen += len(found)
        most = max(most, len(found))
    assert seen == 2_500
    assert most < 250
    one = read_one(log, "t", 0, 1_234, 2_500)
    assert one is not None
    assert one.offset == 1_234
