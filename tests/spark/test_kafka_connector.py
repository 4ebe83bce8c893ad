"""Spark's own Kafka connector, untouched, finds a broker to be what it is used to."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from perf.peers import spark_connector
from qbus import Admin, Producer, TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.tools import skip_because_of

pytestmark = pytest.mark.compat

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
_numbers = itertools.count()

Send = Callable[..., None]
"""Sends a range of numbers to the topic of the test."""
SECOND = 1_700_000_000_000  # Unix time in milliseconds


@pytest.fixture(scope="module", autouse=True)
def _connector(session: SparkSession) -> None:
    skip_because_of(spark_connector.missing())
    for jar in spark_connector.jars().split(","):
        session.sql(f"ADD JAR '{jar}'")


@pytest.fixture
def topic(admin: Admin) -> str:
    """A fresh topic of three partitions."""
    return fresh_topic(admin, partitions=3)


def fresh_topic(admin: Admin, partitions: int) -> str:
    name = f"connector-{next(_numbers)}"
    admin.create_topic(name, partitions=partitions)
    return name


class Connector:
    """The format ``kafka`` on one broker."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark = spark
        self.servers = {"kafka.bootstrap.servers": bootstrap}

    def read(self, topic: str, **options: str) -> DataFrame:
        """A batch of what is there."""
        chosen = {**self.servers, "subscribe": topic, **options}
        return self.spark.read.format("kafka").options(**chosen).load()

    def follow(self, topic: str, **options: str) -> DataFrame:
        """A stream of what is there and comes."""
        chosen = {"startingOffsets": "earliest", **self.servers, "subscribe": topic, **options}
        return self.spark.readStream.format("kafka").options(**chosen).load()

    def write(self, rows: DataFrame, topic: str, **options: str) -> None:
        """A batch."""
        rows.write.format("kafka").options(**self.servers, topic=topic, **options).save()

    def drain(self, rows: DataFrame, topic: str, checkpoint: Path) -> None:
        """A stream of what is there now, into a topic."""
        writer = rows.writeStream.format("kafka").options(**self.servers, topic=topic)
        writer = writer.option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(60)


@pytest.fixture
def connector(spark: SparkSession, broker: BrokerProcess) -> Connector:
    """Return the connector."""
    return Connector(spark, broker.bootstrap)


@pytest.fixture
def send(broker: BrokerProcess, topic: str) -> Send:
    """Return what sends numbers to the topic."""
    return partial(send_numbers, broker.bootstrap, topic)


def send_numbers(bootstrap: str, topic: str, numbers: range, compression: str = "none") -> None:
    """Numbered values, in turn to three partitions, one a second."""
    with Producer(bootstrap, compression=compression) as producer:
        for number in numbers:
            producer.send(
                topic,
                b"%d" % number,
                key=b"k%d" % (number % 7) if number % 2 else None,
                headers=[("n", b"%d" % number)] if number % 5 == 0 else [],
                timestamp=SECOND + 1000 * number,
                partition=number % 3,
            )


def values(rows: DataFrame) -> list[int]:
    """The numbers, sorted."""
    return sorted(int(row.value) for row in rows.select("value").collect())


def test_a_batch_has_all_columns(connector: Connector, send: Send, topic: str) -> None:
    send(range(30))
    rows = connector.read(topic, includeHeaders="true")
    assert rows.columns == [*COLUMNS, "headers"]
    found = sorted(rows.collect(), key=lambda row: int(row.value))
    assert [(row.topic, row.partition, row.offset) for row in found] == [
        (topic, number % 3, number // 3) for number in range(30)
    ]
    assert found[0].key is None
    assert found[1].key == b"k1"
    assert [int(row.timestamp.timestamp() * 1000) for row in found] == [
        SECOND + 1000 * number for number in range(30)
    ]
    assert found[5].headers == [Row(key="n", value=bytearray(b"5"))]
    assert found[1].headers is None


def test_compressed_batches(connector: Connector, send: Send, topic: str) -> None:
    for turn, codec in enumerate(("gzip", "snappy", "lz4", "zstd")):
        send(range(300 * turn, 300 * (turn + 1)), compression=codec)
    assert values(connector.read(topic)) == list(range(1200))


def test_offsets_and_times_to_begin_and_end_with(
    connector: Connector, send: Send, topic: str
) -> None:
    send(range(30))
    rows = connector.read(
        topic,
        startingOffsets=f'{{"{topic}": {{"0": -2, "1": 4, "2": 9}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 2, "1": -1, "2": -1}}}}',
    )
    assert values(rows) == sorted([0, 3, *range(13, 30, 3), 29])
    since = connector.read(topic, startingTimestamp=str(SECOND + 20_500))
    assert values(since) == list(range(21, 30))


def test_a_batch_is_written(connector: Connector, spark: SparkSession, topic: str) -> None:
    rows = spark.range(90).selectExpr(
        "CAST(id AS STRING) AS value",
        "IF(id % 2 = 0, NULL, CAST(id % 7 AS STRING)) AS key",
        "CAST(id % 3 AS INT) AS partition",
        "array(named_struct('key', 'n', 'value', encode(CAST(id AS STRING), 'utf-8'))) AS headers",
    )
    connector.write(rows, topic, includeHeaders="true")
    found = connector.read(topic, includeHeaders="true").collect()
    assert sorted((int(row.value), row.partition) for row in found) == [
        (number, number % 3) for number in range(90)
    ]
    assert all(len(row.headers) == 1 for row in found)


def test_a_stream_from_topic_to_topic_goes_on_where_it_was(
    connector: Connector, admin: Admin, send: Send, topic: str, tmp_path: Path
) -> None:
    other = fresh_topic(admin, partitions=2)
    rows = connector.follow(topic, maxOffsetsPerTrigger="40", minPartitions="4")
    for numbers in (range(100), range(100, 150)):
        send(numbers)
        connector.drain(rows.select("key", "value"), other, tmp_path)
        assert values(connector.read(other)) == list(range(numbers.stop))


def test_a_pattern_finds_topics(connector: Connector, send: Send, topic: str) -> None:
    send(range(9))
    options = {**connector.servers, "subscribePattern": f"{topic}|absent.*"}
    rows = connector.spark.read.format("kafka").options(**options).load()
    assert values(rows) == list(range(9))


def test_data_that_is_gone_fails_a_query_or_is_passed_over(
    connector: Connector, admin: Admin, send: Send, topic: str, tmp_path: Path
) -> None:
    other = fresh_topic(admin, partitions=1)
    rows = connector.follow(topic).select("value")
    send(range(30))
    connector.drain(rows, other, tmp_path)
    send(range(30, 90))
    admin.delete_records({TopicPartition(topic, one): 15 for one in range(3)})
    with pytest.raises(StreamingQueryException):
        connector.drain(rows, other, tmp_path)
    assert values(connector.read(other)) == list(range(30))
    tolerant = connector.follow(topic, failOnDataLoss="false").select("value")
    connector.drain(tolerant, other, tmp_path)
    assert values(connector.read(other)) == [*range(30), *range(45, 90)]
