"""Produce to topics whose batches the broker decompresses: bounded work, bounded memory."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from qbus.broker.compaction import keys
from qbus.broker.delay import contents
from qbus.broker.delay.contents import LoopBudget, look
from qbus.broker.log.config import LogConfig
from qbus.errors import ErrorCode, OversizedBatch
from qbus.records import Compression, CorruptBatch, build_batch, iter_batches, read_header
from qbus.records.compact import keyless
from qbus.wire import ApiKey
from tests.support.bombs import DELAY_HEADER, DELAYED, batch_of_headers, large_batch, swarm
from tests.support.data_plane import DataPlane
from tests.support.logs import NOW_MS

from .test_produce import LATEST, produce, request

MIB = 1 << 20
CODECS = [codec for codec in Compression if codec]
KINDS: dict[str, dict[str, Any]] = {
    "delays": {"qbus_delay_enable": True},
    "compacted": {"cleanup_policy": "compact"},
    "recompressed": {"compression_type": "uncompressed"},
}
BY_TURNS = [(b"k", b"", DELAYED if number % 2 else (), NOW_MS) for number in range(10_001)]
HONEST = bytes(build_batch([(b"k", b"v", DELAYED, NOW_MS)]))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("headers", [(), DELAYED], ids=["plain", "delayed"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_bomb_is_refused_before_it_is_stored(
    plane: DataPlane, kind: str, headers: Any, codec: Compression
) -> None:
    plane.config.set_dynamic({"message.decompressed.max.bytes": str(MIB)}, {})
    partition = await plane.create("orders", **KINDS[kind])
    answer = await produce(plane, large_batch(codec, 2 * MIB, headers))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE, answer.error_message
    assert "larger than 1048576" in (answer.error_message or "")
    assert partition.log.log_end_offset == 0
    assert (await produce(plane, HONEST)).error_code == 0


async def test_the_bound_without_a_setting(plane: DataPlane) -> None:
    await plane.create("orders", qbus_delay_enable=True)
    answer = await produce(plane, large_batch(Compression.ZSTD, 16 * MIB + 1, DELAYED))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "larger than 16777216" in (answer.error_message or "")
    answer = await produce(plane, large_batch(Compression.ZSTD, 15 * MIB, DELAYED))
    assert answer.error_code == 0


@pytest.mark.parametrize("kind", ["delays", "compacted"])
async def test_headers_of_a_record_are_bounded(plane: DataPlane, kind: str) -> None:
    partition = await plane.create("orders", **KINDS[kind])
    answer = await produce(plane, batch_of_headers(1_000_000))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "headers" in (answer.error_message or "")
    assert partition.log.log_end_offset == 0
    assert (await produce(plane, batch_of_headers(1_000))).error_code == 0


@pytest.mark.parametrize(
    ("bomb", "why"),
    [
        (swarm(contents.MAX_RECORDS + 1, headers=[DELAY_HEADER]), "at most 50000"),
        (bytes(build_batch(BY_TURNS, compression=Compression.ZSTD)), "10001 runs"),
        (
            large_batch(Compression.ZSTD, 0, [*DELAYED, *([("h", b"")] * 299)], 700),
            "200000 headers",
        ),
    ],
    ids=["records", "runs", "headers"],
)
async def test_what_is_decoded_of_a_batch_is_bounded(
    plane: DataPlane, bomb: bytes, why: str
) -> None:
    partition = await plane.create("orders", qbus_delay_enable=True)
    answer = await produce(plane, bomb)
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert why in (answer.error_message or "")
    assert partition.log.log_end_offset == 0


async def test_any_number_of_records_passes_that_asks_for_nothing(plane: DataPlane) -> None:
    await plane.create("orders", qbus_delay_enable=True)
    answer = await produce(plane, swarm(200_000))
    assert answer.error_code == 0


# What the event loop does itself


class Threads:
    """Notes in which threads batches are read, and how many at once."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        self.began = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def wrap(self, function: Any) -> Any:
        """``function``, noted."""

        def noted(*args: Any) -> Any:
            with self._lock:
                self.names.append(threading.current_thread().name)
                self._now += 1
                self.most = max(self.most, self._now)
            self.began.set()
            try:
                self.gate.wait(30)
                return function(*args)
            finally:
                with self._lock:
                    self._now -= 1

        return noted


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Threads]:
    noted = Threads()
    monkeypatch.setattr(contents, "_decode", noted.wrap(contents._decode))
    monkeypatch.setattr(keys, "keyless", noted.wrap(keyless))
    yield noted
    noted.gate.set()


@pytest.mark.sources
@pytest.mark.parametrize(
    ("kind", "size", "is_apart"),
    [("delays", 1_000, False), ("delays", 100_000, True), ("compacted", 1_000, True)],
)
async def test_what_takes_long_is_read_by_threads_of_its_own(
    plane: DataPlane, threads: Threads, kind: str, size: int, is_apart: bool
) -> None:
    await plane.create("orders", **KINDS[kind])
    for codec in CODECS:
        answer = await produce(plane, large_batch(codec, size, DELAYED))
        assert answer.error_code == 0
    assert len(threads.names) == len(CODECS)
    for name in threads.names:
        assert name.startswith("qbus-decode") == is_apart


@pytest.mark.sources
async def test_few_batches_are_decoded_at_once(plane: DataPlane, threads: Threads) -> None:
    await plane.create("orders", 20, qbus_delay_enable=True)
    batches = [large_batch(Compression.GZIP, 100_000, DELAYED)] * 20
    plane_request = request(plane, LATEST, *batches)
    response = await plane.call(ApiKey.PRODUCE, LATEST, plane_request)
    assert [one.error_code for one in response.responses[0].partition_responses] == [0] * 20
    assert len(threads.names) == 20
    assert threads.most <= 2


@pytest.mark.sources
async def test_others_are_served_while_a_batch_is_decoded(
    plane: DataPlane, threads: Threads
) -> None:
    partition = await plane.create("orders", 2, qbus_delay_enable=True)
    memory = plane.broker.memory
    threads.gate.clear()
    large = large_batch(Compression.ZSTD, 100_000, DELAYED)
    waiting = asyncio.ensure_future(produce(plane, large))
    await asyncio.to_thread(threads.began.wait, 30)
    assert memory.used == len(large)  # of the copy
    plain = bytes(build_batch([(b"k", b"v", (), NOW_MS)]))
    assert (await produce(plane, plain)).base_offset == 0
    assert not waiting.done()
    threads.gate.set()
    assert (await waiting).base_offset == 1
    assert memory.used == 0
    assert partition.log.log_end_offset == 2


async def test_batches_of_one_partition_stay_in_order_within_a_request(plane: DataPlane) -> None:
    partition = await plane.create("orders", qbus_delay_enable=True)
    large = [large_batch(Compression.GZIP, 70_000 + number, DELAYED) for number in range(5)]
    asked = request(plane, LATEST, *large)
    for data in asked.topic_data[0].partition_data:
        data.index = 0
    response = await plane.call(ApiKey.PRODUCE, LATEST, asked)
    answers = response.responses[0].partition_responses
    assert [one.base_offset for one in answers] == [0, 1, 2, 3, 4]
    stored = partition.log.read(0, 1 << 20, 5)
    assert stored is not None
    with stored:
        sizes = [header.size for header, _ in iter_batches(stored.read())]
    assert sizes == [len(one) for one in large]


class TestBudget:
    """How many bytes the event loop looks through."""

    CONFIG = LogConfig(qbus_delay_enable=True)

    def look(self, batch: bytes, left: int = 16 * MIB) -> int:
        """What a look spends; the rest is for a thread if it raises BlockingIOError."""
        budget = LoopBudget(left)
        look(batch, read_header(batch), self.CONFIG, NOW_MS, budget)
        return left - budget.left

    @pytest.mark.parametrize("codec", Compression)
    def test_a_small_batch_is_looked_through_at_once(self, codec: Compression) -> None:
        batch = large_batch(codec, 1_000)
        assert self.look(batch) <= 64 << 10

    @pytest.mark.parametrize("codec", CODECS)
    def test_no_batch_is_looked_through_beyond_its_share(self, codec: Compression) -> None:
        batch = large_batch(codec, 4 * MIB)
        with pytest.raises(BlockingIOError):
            self.look(batch)

    @pytest.mark.parametrize("codec", Compression)
    def test_a_request_has_one_budget(self, codec: Compression) -> None:
        batch = large_batch(codec, 1_000)
        with pytest.raises(BlockingIOError):
            self.look(batch, left=500)

    def test_decoding_counts_more(self) -> None:
        batch = large_batch(Compression.NONE, 10_000, DELAYED)
        assert self.look(batch) > 16 * 10_000

    def test_damage_is_said_at_once(self) -> None:
        batch = bytearray(large_batch(Compression.GZIP, 1_000, DELAYED))
        batch[70:] = bytes(len(batch) - 70)
        with pytest.raises(CorruptBatch) as caught:
            self.look(bytes(batch))
        assert not isinstance(caught.value, OversizedBatch)
