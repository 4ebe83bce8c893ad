"""Topics full of what is held back, read by both connectors: each visible record once."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perf.peers import spark_connector
from qbus import Admin, Consumer, Producer, TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.tools import skip_because_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 3
BATCHES = 20
FORMATS = {"qbus": "qbus.bootstrap", "kafka": "kafka.bootstrap.servers"}


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest, spark: "SparkSession") -> str:
    """Our format, and Spark's own."""
    if request.param == "kafka":
        skip_because_of(spark_connector.missing())
        for jar in spark_connector.jars().split(","):
            spark.sql(f"ADD JAR '{jar}'")
    return str(request.param)


@pytest.fixture
def delaying(admin: Admin, producer: Producer, request: pytest.FixtureRequest) -> str:
    """A topic that held most of its records back for a moment, and still holds some."""
    name = f"{request.node.name}".replace("[", "-").replace("]", "")
    admin.create_topic(name, partitions=PARTITIONS, config={"qbus.delay.enable": "true"})
    for number in range(BATCHES):
        for partition in range(PARTITIONS):
            text = b"%d-%d" % (partition, number)
            producer.send(name, b"now " + text, partition=partition)
            producer.send_many(name, [b"soon " + text] * 3, partition=partition, delay="300ms")
            producer.send(name, b"never", b"k", partition=partition, delay="1h")
    for partition in range(PARTITIONS):
        producer.send(name, None, b"k", [("qbus-cancel", b"key")], partition=partition)
        producer.send_many(name, [b"far"] * 10, partition=partition, delay="30d")
    producer.flush()
    time.sleep(1)
    return name


def counted(rows: "DataFrame") -> dict[str, int]:
    """How many rows there are of each value's first word."""
    words = rows.selectExpr("split(cast(value AS string), ' ')[0] AS word").groupBy("word").count()
    return {row["word"]: row["count"] for row in words.collect()}


EXPECTED = {"now": PARTITIONS * BATCHES, "soon": PARTITIONS * BATCHES * 3}


@pytest.fixture
def load(
    spark: "SparkSession", broker: BrokerProcess, delaying: str, form: str
) -> "Callable[[str], DataFrame]":
    def load(kind: str) -> "DataFrame":
        reader = getattr(spark, kind).format(form).option(FORMATS[form], broker.bootstrap)
        loaded: DataFrame = (
            reader.option("subscribe", delaying).option("startingOffsets", "earliest").load()
        )
        return loaded

    return load


def test_a_batch(load: "Callable[[str], DataFrame]") -> None:
    assert counted(load("read")) == EXPECTED


def test_a_stream_that_is_stopped_and_goes_on(
    load: "Callable[[str], DataFrame]",
    spark: "SparkSession",
    producer: Producer,
    delaying: str,
    tmp_path: Path,
) -> None:
    written = str(tmp_path / "rows")

    def drain() -> None:
        writer = load("readStream").select("value").writeStream.format("parquet")
        writer = writer.option("path", written).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(120)

    drain()
    assert counted(spark.read.parquet(written)) == EXPECTED
    producer.send_many(delaying, [b"more"] * 5, partition=0, delay="200ms")
    producer.flush()
    time.sleep(0.6)
    drain()
    assert counted(spark.read.parquet(written)) == EXPECTED | {"more": 5}


@pytest.mark.parametrize("exactly_once", ["true", "false"])
def test_rows_with_a_time_to_deliver_at(
    spark: "SparkSession",
    broker: BrokerProcess,
    admin: Admin,
    producer: Producer,
    exactly_once: str,
) -> None:
    name = f"due-{exactly_once}"
    admin.create_topic(name, partitions=1, config={"qbus.delay.enable": "true"})
    rows = spark.range(10).selectExpr(
        "cast(id AS string) AS value",
        "if(id % 2 = 0, null, current_timestamp() + make_interval(0, 0, 0, 0, 0, 0, 3600))"
        " AS deliver_at",
    )
    writer = rows.write.format("qbus").option("qbus.bootstrap", broker.bootstrap).mode("append")
    writer = writer.option("topic", name).option("qbus.exactly.once", exactly_once)
    writer.option("qbus.query.id", name).option("qbus.batch.id", "1").save()
    place = TopicPartition(name, 0)
    held = admin.describe_delayed([place], limit=10)[place]
    assert held.pending == 5
    assert all(abs(one.due - one.taken - 3_600_000) < 60_000 for one in held.records)
    with Consumer(broker.bootstrap, offset_reset="earliest") as consumer:
        consumer.assign([place])
        visible = {record.value for run in consumer.poll(10) for record in run}
    assert visible == {b"0", b"2", b"4", b"6", b"8"}
