"""Unreadable or lost data is an error that says what to do; nothing is skipped."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qbus import Admin, Producer, TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.spark_streams import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

Stream = Callable[..., int]


@pytest.fixture
def stream(spark: "SparkSession", broker: BrokerProcess, topic: str, tmp_path: Path) -> Stream:
    """Read what is new of the topic, with one checkpoint; how many rows there were."""

    def read(**options: str) -> int:
        reader = spark.readStream.format("qbus").option("qbus.bootstrap", broker.bootstrap)
        chosen = {"subscribe": topic, "startingOffsets": "earliest", **options}
        seen: list[int] = []
        writer = (
            reader.options(**chosen)
            .load()
            .writeStream.foreachBatch(lambda batch, _: seen.append(batch.count()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        run_to_end(writer.start)
        return sum(seen)

    return read


def put(producer: Producer, topic: str, count: int) -> None:
    producer.send_many(topic, [b"value"] * count, partition=0)
    producer.flush()


def test_records_that_retention_took_stop_the_query(
    stream: Stream, producer: Producer, admin: Admin, topic: str
) -> None:
    put(producer, topic, 10)
    assert stream() == 10
    put(producer, topic, 10)
    admin.delete_records({TopicPartition(topic, 0): 15})
    with pytest.raises(Exception, match=f"{topic}-0 begins at offset 15 now.*failOnDataLoss"):
        stream()
    assert stream(failOnDataLoss="false") == 5


def test_a_topic_that_was_created_again_stops_the_query(
    stream: Stream, producer: Producer, admin: Admin, topic: str
) -> None:
    put(producer, topic, 10)
    assert stream() == 10
    admin.delete_topic(topic)
    with pytest.raises(Exception, match=f"{topic}-0 no longer exists"):
        stream()
    admin.create_topic(topic, partitions=2)
    put(producer, topic, 12)
    with pytest.raises(Exception, match=f"topic {topic} was deleted and created again"):
        stream()
    assert stream(failOnDataLoss="false") == 12
    assert stream() == 0


def test_a_checkpoint_of_another_source_is_refused(
    stream: Stream, producer: Producer, topic: str, tmp_path: Path
) -> None:
    put(producer, topic, 1)
    assert stream() == 1
    written = tmp_path / "checkpoint" / "offsets" / "0"
    (tmp_path / "checkpoint" / "offsets" / ".0.crc").unlink(missing_ok=True)
    lines = written.read_text().splitlines()
    written.write_text("\n".join([*lines[:-1], f'{{"{topic}": {{"0": 1}}}}']))
    with pytest.raises(Exception, match=r"checkpoint cannot be read.*checkpointLocation"):
        stream()


def test_a_topic_that_is_not_there_is_named(stream: Stream) -> None:
    with pytest.raises(Exception, match=r"topic no-such-topic: .*create the topic first"):
        stream(subscribe="no-such-topic")


def test_a_wrong_option_is_named(spark: "SparkSession", broker: BrokerProcess) -> None:
    reader = spark.read.format("qbus").option("qbus.bootstrap", broker.bootstrap)
    with pytest.raises(Exception, match=r"option startingoffset: .*did you mean startingOffsets"):
        reader.option("subscribe", "topic").option("startingOffset", "latest").load().collect()


def test_a_wrong_schema_is_named(spark: "SparkSession", broker: BrokerProcess, topic: str) -> None:
    reader = spark.read.format("qbus").option("qbus.bootstrap", broker.bootstrap)
    frame = reader.option("subscribe", topic).schema("value string").load()
    with pytest.raises(Exception, match="column value is string and must be binary: cast it"):
        frame.collect()


def test_brokers_that_do_not_answer_are_named(spark: "SparkSession") -> None:
    nobody = f"127.0.0.1:{free_port()}"
    reader = spark.read.format("qbus").option("kafka.bootstrap.servers", nobody)
    reader = reader.option("subscribe", "topic").option("kafka.request.timeout.ms", "500")
    with pytest.raises(Exception, match=f"no broker of {nobody}.*answers this host"):
        reader.load().collect()


def test_offsets_that_are_not_there_are_named(
    spark: "SparkSession", broker: BrokerProcess, topic: str
) -> None:
    reader = spark.read.format("qbus").option("qbus.bootstrap", broker.bootstrap)
    ends = f'{{"{topic}": {{"0": 5, "1": -1}}}}'
    reader = reader.option("subscribe", topic).option("endingOffsets", ends)
    with pytest.raises(Exception, match=f"{topic}-0 ends at offset 0, before 5"):
        reader.load().collect()
    assert reader.option("failOnDataLoss", "false").load().count() == 0
