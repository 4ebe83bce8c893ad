"""The source as its users have it: batch and streaming queries over a real broker."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbus import Admin, Producer, TopicPartition
from qbus.clients.spark.lag import LagListener, Lags
from tests.support.broker_process import BrokerProcess
from tests.support.spark_streams import run_to_end
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(300)


def put(producer: Producer, topic: str, values: list[bytes], partition: int) -> None:
    """Send, and see that it has arrived."""
    producer.send_many(topic, values, partition=partition)
    producer.flush()


class Queries:
    """Runs streaming queries over one topic, with one checkpoint, and gathers what they give."""

    def __init__(
        self, spark: "SparkSession", broker: BrokerProcess, topic: str, directory: Path
    ) -> None:
        self.seen: list[tuple[int, int, bytes]] = []
        self.sizes: list[int] = []
        self.is_failing = False
        self._spark = spark
        self._directory = directory
        self._options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }

    def start(self, options: dict[str, str] | None = None, **trigger: Any) -> "StreamingQuery":
        """Start or go on."""
        reader = self._spark.readStream.format("qbus").options(**self._options, **(options or {}))

        def gather(batch: "DataFrame", _: int) -> None:
            if self.is_failing:
                raise RuntimeError("the sink fails")
            rows = batch.select("partition", "offset", "value").collect()
            self.sizes.append(len(rows))
            self.seen += [(row[0], row[1], bytes(row[2])) for row in rows]

        chosen = trigger or {"processingTime": "0 seconds"}
        writer = reader.load().writeStream.foreachBatch(gather).trigger(**chosen)
        return writer.option("checkpointLocation", str(self._directory)).start()

    def run(self, options: dict[str, str] | None = None) -> "StreamingQuery":
        """Read what there is now, to its end; raises what the query does."""
        return run_to_end(lambda: self.start(options, availableNow=True))


@pytest.fixture
def queries(
    spark: "SparkSession", broker: BrokerProcess, topic: str, tmp_path: Path
) -> Iterator[Queries]:
    yield Queries(spark, broker, topic, tmp_path / "checkpoint")
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def read(spark: "SparkSession", broker: BrokerProcess, topic: str) -> Callable[..., "DataFrame"]:
    """Load the topic as a batch, with options and perhaps columns."""

    def load(schema: str | None = None, **options: str) -> "DataFrame":
        reader = spark.read.format("qbus").option("qbus.bootstrap", broker.bootstrap)
        reader = reader.option("subscribe", topic).options(**options)
        return (reader if schema is None else reader.schema(schema)).load()

    return load


def test_a_batch_has_the_columns_of_kafka(
    read: Callable[..., "DataFrame"], producer: Producer, topic: str
) -> None:
    headers = [("a", b"1"), ("a", None)]
    producer.send(topic, b"value", b"key", headers, partition=1, timestamp=1_700_000_000_123)
    producer.send(topic, None, partition=0, timestamp=0)
    producer.flush()
    first, second = read(includeHeaders="true").orderBy("partition").collect()
    assert [bytes(second["key"]), bytes(second["value"])] == [b"key", b"value"]
    assert [second["topic"], second["partition"], second["offset"]] == [topic, 1, 0]
    assert second["timestamp"].timestamp() == pytest.approx(1_700_000_000.123)
    assert second["timestampType"] == 0
    assert [(one["key"], one["value"]) for one in second["headers"]] == [("a", b"1"), ("a", None)]
    assert [first["key"], first["value"], first["headers"]] == [None, None, []]
    assert "headers" not in read().columns


def test_columns_are_chosen_by_a_schema_and_ranges_split(
    read: Callable[..., "DataFrame"], producer: Producer, topic: str
) -> None:
    put(producer, topic, [b"%d" % number for number in range(1000)], partition=0)
    found = read(
        "offset bigint, value binary",
        minPartitions="5",
        startingOffsets=f'{{"{topic}": {{"0": 10, "1": -2}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 900, "1": -1}}}}',
    )
    assert found.columns == ["offset", "value"]
    assert found.rdd.getNumPartitions() == 5
    rows = [(row[0], bytes(row[1])) for row in found.orderBy("offset").collect()]
    assert rows == [(number, b"%d" % number) for number in range(10, 900)]


def test_a_query_goes_on_where_it_was_and_splits_its_backlog(
    queries: Queries, producer: Producer, topic: str
) -> None:
    put(producer, topic, [b"first"] * 300, partition=0)
    put(producer, topic, [b"first"] * 100, partition=1)
    query = queries.run({"maxOffsetsPerTrigger": "200"})
    assert query.exception() is None
    assert queries.sizes == [200, 200]
    put(producer, topic, [b"second"] * 50, partition=1)
    queries.run()
    assert sorted(queries.seen) == (
        [(0, offset, b"first") for offset in range(300)]
        + [(1, offset, b"first") for offset in range(100)]
        + [(1, offset, b"second") for offset in range(100, 150)]
    )


def test_a_running_query_sees_new_partitions_and_shows_its_lag(
    spark: "SparkSession", queries: Queries, producer: Producer, admin: Admin, topic: str
) -> None:
    published: list[Lags] = []
    listener = LagListener(lambda _, lags: published.append(lags))
    spark.streams.addListener(listener)
    query = queries.start({"kafka.group.id": f"group-of-{topic}"})
    query.processAllAvailable()
    admin.create_partitions(topic, 3)
    put(producer, topic, [b"new"] * 3, partition=2)
    wait_until(lambda: len(queries.seen) == 3, "what was sent is read", 60)
    put(producer, topic, [b"more"], partition=0)
    wait_until(lambda: len(queries.seen) == 4, "what was sent is read", 60)

    def shown() -> dict[int, int]:
        offsets = admin.group_offsets(f"group-of-{topic}")
        return {one.partition: one.committed_offset for one in offsets}

    wait_until(lambda: shown() == {0: 1, 1: 0, 2: 3}, "the group shows what was read", 60)
    ends = {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0, TopicPartition(topic, 2): 0}
    wait_until(lambda: ends in published, "the listener tells that nothing is left", 60)
    query.stop()
    spark.streams.removeListener(listener)
    assert query.exception() is None


def test_a_batch_that_failed_is_read_again_as_it_was_planned(
    queries: Queries, producer: Producer, topic: str
) -> None:
    put(producer, topic, [b"planned"] * 30, partition=0)
    queries.is_failing = True
    with pytest.raises(Exception, match="the sink fails"):
        queries.run()
    put(producer, topic, [b"later"] * 5, partition=0)
    queries.is_failing = False
    queries.run()
    assert queries.sizes == [30, 5]
    assert [offset for _, offset, _ in sorted(queries.seen)] == list(range(35))
