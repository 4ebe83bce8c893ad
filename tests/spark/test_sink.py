"""The sink as its users have it: batch and streaming queries that write to a real broker."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qbus import Admin, Consumer
from qbus.clients.producer.partitioner import partition_for_key
from qbus.clients.types import ConsumerRecord, TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

_numbers = itertools.count()


@pytest.fixture
def out(admin: Admin) -> str:
    """A topic to write to, with three partitions."""
    name = f"out-{next(_numbers)}"
    admin.create_topic(name, partitions=3)
    return name


@pytest.fixture
def save(broker: BrokerProcess, out: str) -> Callable[..., None]:
    """Write a data frame to the topic."""

    def run(frame: "DataFrame", topic: str | None = out, **options: str) -> None:
        chosen = {"kafka.bootstrap.servers": broker.bootstrap, **_dotted(options)}
        if topic is not None:
            chosen["topic"] = topic
        frame.write.format("qbus").options(**chosen).mode("append").save()

    return run


def _dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in options.items()}


def records(broker: BrokerProcess, topic: str) -> list[ConsumerRecord]:
    """All records of a topic, by partition and offset."""
    with Admin(broker.bootstrap) as admin, Consumer(broker.bootstrap) as consumer:
        partitions = admin.describe_topic(topic).partitions
        ends = consumer.end_offsets([TopicPartition(topic, each.index) for each in partitions])
        left = sum(ends.values())
        consumer.assign([(topic, each.index, 0) for each in partitions])
        found: list[ConsumerRecord] = []
        while len(found) < left:
            found += [record for part in consumer.poll(10) for record in part]
    return sorted(found, key=lambda record: (record.partition, record.offset))


def values(broker: BrokerProcess, topic: str) -> Counter[bytes]:
    return Counter(record.value or b"" for record in records(broker, topic))


def test_every_column_arrives(
    spark: "SparkSession", broker: BrokerProcess, save: Callable[..., None], out: str
) -> None:
    at = datetime(2001, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)
    frame = spark.createDataFrame(
        [
            (b"k", b"v", [("h", b"1"), ("h", None)], out, 2, at),
            (None, b"w", None, out, None, None),
            (b"k", None, [], out, None, at),
        ],
        "key binary, value binary, headers array<struct<key string, value binary>>,"
        " topic string, partition int, timestamp timestamp",
    )
    save(frame.coalesce(1), topic=None, kafka_compression_type="lz4")
    found = {record.value: record for record in records(broker, out)}
    assert found[b"v"].partition == 2
    assert found[b"v"].headers == (("h", b"1"), ("h", None))
    assert found[b"v"].timestamp == int(at.timestamp() * 1000)
    assert found[b"w"].key is None
    assert found[b"w"].timestamp > found[b"v"].timestamp
    assert (found[None].partition, found[None].key) == (partition_for_key(b"k", 3), b"k")


def test_keys_go_where_the_sdk_sends_them_and_the_rest_is_shared_out(
    spark: "SparkSession", broker: BrokerProcess, save: Callable[..., None], out: str
) -> None:
    frame = spark.range(60_000).selectExpr(
        "cast(id as string) as value",
        "case when id < 30000 then concat('key-', id % 100) end as key",
    )
    save(frame.repartition(4))
    found = records(broker, out)
    assert Counter(int(record.value or b"") for record in found) == Counter(range(60_000))
    for record in found:
        if record.key is not None:
            assert record.partition == partition_for_key(record.key, 3)
    assert len({record.partition for record in found if record.key is None}) > 1


def test_a_task_that_fails_half_way_leaves_nothing_behind(
    spark: "SparkSession", broker: BrokerProcess, save: Callable[..., None], out: str
) -> None:
    def fail_once(part: int, numbers: "Iterable[int]") -> "Iterator[tuple[str]]":
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number in numbers:
            if number % 25_000 == 15_000 and context.attemptNumber() == 0:
                raise RuntimeError("the first attempt fails")
            yield (str(number),)

    rows = spark.sparkContext.range(0, 50_000, 1, 2).mapPartitionsWithIndex(fail_once)
    save(spark.createDataFrame(rows, "value string"), kafka_batch_size="20000")
    assert values(broker, out) == Counter(b"%d" % number for number in range(50_000))


def test_a_bad_row_stops_the_write_before_anything_is_published(
    spark: "SparkSession", broker: BrokerProcess, save: Callable[..., None], out: str
) -> None:
    frame = spark.range(1000).selectExpr(
        "'v' as value", f"case when id <> 999 then '{out}' end as topic"
    )
    with pytest.raises(Exception, match="topic is null"):
        save(frame, topic=None)
    assert records(broker, out) == []


def test_a_batch_write_with_a_name_is_done_once(
    spark: "SparkSession", broker: BrokerProcess, save: Callable[..., None], out: str
) -> None:
    frame = spark.range(100).selectExpr("cast(id as string) as value")
    for batch in ("7", "7", "8", "7"):
        save(frame, qbus_query_id=f"job-{out}", qbus_batch_id=batch)
    assert set(values(broker, out).values()) == {2}


def test_at_least_once_writes_at_once(
    spark: "SparkSession", broker: BrokerProcess, save: Callable[..., None], out: str
) -> None:
    frame = spark.range(20_000).selectExpr("cast(id as string) as value", "cast(id as string) key")
    save(frame, qbus_exactly_once="false", kafka_acks="1")
    # It is answered once the leader has written it, and read once that is on its disk.
    wait_until(lambda: len(records(broker, out)) >= 20_000, "all to be on the disk", 30)
    found = records(broker, out)
    assert Counter(record.value for record in found) == Counter(
        b"%d" % number for number in range(20_000)
    )
    assert all(r.key is not None and r.partition == partition_for_key(r.key, 3) for r in found)


class Shipping:
    """A streaming query that writes the lines of files to a topic; it can be restarted."""

    def __init__(
        self, spark: "SparkSession", broker: BrokerProcess, out: str, directory: Path
    ) -> None:
        self._spark = spark
        self._options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": out}
        self._files = directory / "files"
        self._files.mkdir()
        self._checkpoint = directory / "checkpoint"

    def put(self, numbers: range) -> None:
        """Add a file: a micro-batch."""
        path = self._files / f"from-{numbers.start}"
        path.with_name(f".{path.name}").write_text("".join(f"{number}\n" for number in numbers))
        path.with_name(f".{path.name}").rename(path)

    def run(self, **options: str) -> None:
        """Write what there is now."""
        reader = self._spark.readStream.format("text").option("maxFilesPerTrigger", "1")
        frame = reader.load(str(self._files)).selectExpr("value", "right(value, 1) as key")
        writer = frame.writeStream.format("qbus").options(**self._options).options(**options)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    def forget_commits_from(self, batch: int) -> None:
        """Make Spark run batches again, as after a crash between the sink's commit and its own."""
        for path in (self._checkpoint / "commits").iterdir():  # "2", and ".2.crc" beside it
            if int(path.name.strip(".").split(".")[0]) >= batch:
                path.unlink()


@pytest.fixture
def shipping(
    spark: "SparkSession", broker: BrokerProcess, out: str, tmp_path: Path
) -> Iterator[Shipping]:
    yield Shipping(spark, broker, out, tmp_path)
    for query in spark.streams.active:
        query.stop()


def test_a_batch_that_spark_runs_again_is_written_once(
    shipping: Shipping, broker: BrokerProcess, out: str
) -> None:
    for start in (0, 1000, 2000):
        shipping.put(range(start, start + 1000))
    shipping.run()
    assert values(broker, out) == Counter(b"%d" % number for number in range(3000))
    shipping.forget_commits_from(2)
    shipping.put(range(3000, 4000))
    shipping.run()
    shipping.run()
    assert values(broker, out) == Counter(b"%d" % number for number in range(4000))


def test_a_query_starts_in_another_thread_that_used_the_session(
    spark: "SparkSession", shipping: Shipping, broker: BrokerProcess, out: str
) -> None:
    def start() -> None:
        spark.createDataFrame([], "nothing int")
        shipping.run()

    shipping.put(range(1000))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(start).result()
    assert values(broker, out) == Counter(b"%d" % number for number in range(1000))


def test_another_staging_topic_is_refused_while_the_query_lives(shipping: Shipping) -> None:
    shipping.put(range(10))
    shipping.run()
    shipping.put(range(10, 20))
    with pytest.raises(Exception, match=r"qbus\.staging\.topic.*name that topic"):
        shipping.run(**{"qbus.staging.topic": "another"})


class TestInTransactions:
    """The same with ``qbus.transactions``, for readers of committed records."""

    @staticmethod
    def committed(broker: BrokerProcess, topic: str) -> Counter[bytes]:
        with Consumer(
            broker.bootstrap,
            isolation_level="read_committed",
            offset_reset="earliest",
            consumer_timeout_ms=1000,
        ) as consumer:
            consumer.subscribe([topic])
            return Counter(record.value or b"" for record in consumer)

    def test_a_batch_that_spark_runs_again_is_written_once(
        self, shipping: Shipping, broker: BrokerProcess, out: str
    ) -> None:
        in_transactions = {"qbus.transactions": "true"}
        for start in (0, 1000, 2000):
            shipping.put(range(start, start + 1000))
        shipping.run(**in_transactions)
        shipping.forget_commits_from(2)
        shipping.put(range(3000, 4000))
        shipping.run(**in_transactions)
        assert self.committed(broker, out) == Counter(b"%d" % number for number in range(4000))
        shipping.put(range(4000, 5000))
        shipping.run()
        assert self.committed(broker, out) == Counter(b"%d" % number for number in range(5000))

    def test_a_task_that_fails_half_way_leaves_nothing_behind(
        self, spark: "SparkSession", broker: BrokerProcess, save: Callable[..., None], out: str
    ) -> None:
        def fail_once(part: int, numbers: "Iterable[int]") -> "Iterator[tuple[str]]":
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            for number in numbers:
                if number % 2_500 == 1_500 and context.attemptNumber() == 0:
                    raise RuntimeError("the first attempt fails")
                yield (str(number),)

        rows = spark.sparkContext.range(0, 5_000, 1, 2).mapPartitionsWithIndex(fail_once)
        frame = spark.createDataFrame(rows, "value string")
        save(frame, kafka_batch_size="2000", qbus_transactions="true")
        assert self.committed(broker, out) == Counter(b"%d" % number for number in range(5_000))
