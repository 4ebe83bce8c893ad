"""A range is fetched as it was planned, wherever its partition is, or the task says why not."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from qbus.clients.errors import RequestTimedOut
from qbus.clients.net.cluster import Cluster
from qbus.clients.spark.errors import DataLoss
from qbus.clients.spark.options import Options
from qbus.clients.spark.source import fetch as fetching
from qbus.clients.spark.source.arrow import before
from qbus.clients.spark.source.fetch import RangeFetch
from qbus.clients.spark.source.options import FetchOptions
from qbus.clients.spark.source.planning import OffsetRange
from qbus.records import CorruptBatch, build_batch
from qbus.wire import ApiKey
from tests.support.fake_cluster import FakeCluster

OPTIONS = FetchOptions.of(
    Options({"qbus.bootstrap": "127.0.0.1:9", "kafkaConsumer.pollTimeoutMs": "300"})
)
LENIENT = replace(OPTIONS, fail_on_data_loss=False)
CONTROL = 0x20
NO_ID = str(UUID(int=0))


@pytest.fixture
async def brokers() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(2) as cluster:
        yield cluster


@pytest.fixture
async def client(brokers: FakeCluster) -> AsyncIterator[Cluster]:
    cluster = Cluster(brokers.bootstrap, "test", 5.0)
    yield cluster
    await cluster.close()


def fill(brokers: FakeCluster, batches: int, records: int = 10) -> None:
    """Append batches, each value the offset of its record."""
    log = brokers.logs["t", 0]
    for _ in range(batches):
        rows = [(None, b"%d" % (log.end + index), (), 5) for index in range(records)]
        log.append(bytes(build_batch(rows)), brokers.epochs["t", 0])


def end_of_transaction() -> bytes:
    """A batch that nobody sees."""
    marker = (b"\0\0\0\1", b"\0\0\0\0\0\0", (), 5)
    return bytes(build_batch([marker], attributes=CONTROL))


async def read(
    client: Cluster, start: int, end: int, options: FetchOptions = OPTIONS, topic_id: str = NO_ID
) -> list[int]:
    """The offsets that a task gets."""
    fetch = RangeFetch(client, OffsetRange("t", 0, start, end, topic_id), options)
    offsets: list[int] = []
    try:
        while (batch := await fetch.next()) is not None:
            kept = before(batch, end)
            assert [int(value) for value in kept.column("value").to_pylist()] == kept.column(
                "offset"
            ).to_pylist()
            offsets += kept.column("offset").to_pylist()
    finally:
        await fetch.close()
    return offsets


async def test_a_range_is_read_from_its_start_to_its_end(
    brokers: FakeCluster, client: Cluster
) -> None:
    fill(brokers, 5)
    assert await read(client, 13, 38) == list(range(13, 38))
    assert await read(client, 0, 50) == list(range(50))
    assert await read(client, 5, 5) == []


async def test_an_answer_without_visible_records_is_not_waited_upon(
    brokers: FakeCluster, client: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_RECHECK", 3600.0)
    fill(brokers, 1)
    for _ in range(3):
        brokers.logs["t", 0].append(end_of_transaction(), brokers.epochs["t", 0])
    options = replace(OPTIONS, partition_max_bytes=60, patience=10)
    async with asyncio.timeout(30):
        assert await read(client, 0, 13, options) == list(range(10))


async def test_nothing_is_fetched_behind_the_end(brokers: FakeCluster, client: Cluster) -> None:
    fill(brokers, 5)
    fetch = RangeFetch(client, OffsetRange("t", 0, 0, 50, NO_ID), OPTIONS)
    batch = await fetch.next()
    assert batch is not None
    assert batch.num_rows == 50
    await asyncio.sleep(0.05)  # long enough to ask for more
    await fetch.close()
    fetches = [request for api, _, request in brokers.nodes[1].requests if api is ApiKey.FETCH]
    assert len(fetches) == 1


async def test_a_leader_that_moves_is_followed(brokers: FakeCluster, client: Cluster) -> None:
    fill(brokers, 2)
    fetch = RangeFetch(client, OffsetRange("t", 0, 0, 40, NO_ID), replace(OPTIONS, patience=10))
    first = await fetch.next()
    assert first is not None
    offsets = first.column("offset").to_pylist()
    brokers.move("t", 0, 2)
    fill(brokers, 2)
    brokers.publish()
    while (batch := await fetch.next()) is not None:
        offsets += batch.column("offset").to_pylist()
    await fetch.close()
    assert offsets == list(range(40))


async def test_records_that_are_gone_stop_the_task(brokers: FakeCluster, client: Cluster) -> None:
    fill(brokers, 5)
    brokers.logs["t", 0].start = 20
    with pytest.raises(DataLoss, match=r"t-0 from 3 to 45.*failOnDataLoss"):
        await read(client, 3, 45)
    assert await read(client, 3, 45, LENIENT) == list(range(20, 45))
    assert await read(client, 3, 15, LENIENT) == []


async def test_a_log_that_ends_too_soon_stops_the_task(
    brokers: FakeCluster, client: Cluster
) -> None:
    fill(brokers, 1)
    with pytest.raises(DataLoss, match="the log ends at offset 10"):
        await read(client, 0, 15)
    assert await read(client, 0, 15, LENIENT) == list(range(10))
    with pytest.raises(DataLoss, match="t-0 from 12 to 15"):
        await read(client, 12, 15)
    assert await read(client, 12, 15, LENIENT) == []


async def test_another_topic_of_the_same_name_is_not_read(
    brokers: FakeCluster, client: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_MAX_MISMATCHES", 2)
    monkeypatch.setattr(fetching, "_RETRY_PAUSE", 0.001)
    fill(brokers, 1)
    planned = str(UUID(int=1))
    with pytest.raises(DataLoss, match="deleted and created again"):
        await read(client, 0, 10, topic_id=planned)
    assert await read(client, 0, 10, LENIENT, topic_id=planned) == []


async def test_a_missing_leader_is_a_timeout(brokers: FakeCluster, client: Cluster) -> None:
    await brokers.kill(1)
    with pytest.raises(RequestTimedOut, match=r"no records at offset 0.*pollTimeoutMs"):
        await read(client, 0, 10)


@pytest.mark.parametrize("found_by", ["the client", "the broker"])
async def test_a_corrupt_batch_ends_the_task_or_is_skipped(
    brokers: FakeCluster, client: Cluster, caplog: pytest.LogCaptureFixture, found_by: str
) -> None:
    fill(brokers, 5)
    log = brokers.logs["t", 0]
    damaged = log.batches[2]
    if found_by == "the client":
        log.batches[2] = damaged[:-1] + bytes([damaged[-1] ^ 1])
    else:
        log.corrupt = range(20, 30)
    with pytest.raises(CorruptBatch, match="t-0 at offset 20: "):
        await read(client, 0, 50)
    assert await read(client, 0, 50, LENIENT) == [*range(20), *range(30, 50)]
    assert "t-0 at offset 20: " in caplog.text
