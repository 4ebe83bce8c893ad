"""Qbus's source and sink on Spark beside Spark's own Kafka connector, on the same broker.

All of it in one session with two cores and default settings, but that PySpark is where its workers
need not compile it at each start, as in ``qbus cluster up --spark``. The connector is Maven
Central's; where it cannot be had, its columns stay empty. The ceiling is a Python source of batches
built before.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count as counter
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from perf import rdkafka
from perf.peers import spark_connector
from perf.report import Figure
from perf.servers import MEMORY
from perf.spark_latency import waiting
from perf.spark_sides import JVM, PREBUILT, QBUS, Side, drop_batch, drop_stream, write_batch
from perf.spark_workers import WorkersMemory
from tests.support.broker_process import BrokerProcess
from tests.support.spark_session import missing, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = {100: 3_000_000, 1000: 600_000}
"""By the size of a value in bytes; a third of them to write."""
CODECS = ("none", "lz4")
PARTITIONS = 2

_topics = counter()


def run(rounds: int, scale: float) -> list[Figure]:
    """Reading into nothing, writing, and how long a small micro-batch takes."""
    if reason := missing():
        print(f"left out: {reason}", file=sys.stderr)
        return []
    sides = [QBUS, PREBUILT]
    if reason := spark_connector.missing():
        print(f"without Spark's own connector: {reason}", file=sys.stderr)
    else:
        sides.append(JVM)
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory,
        BrokerProcess(Path(directory, "qbus"), *MEMORY.qbus) as broker,
        _session() as spark,
    ):
        bench = Bench(spark, broker.bootstrap, sides, rounds)
        for (size, full), codec in product(ROWS.items(), CODECS):
            count = max(int(full * scale), 3000)
            figures += bench.reading(size, codec, count)
            figures += bench.writing(size, codec, count // 3)
        figures += waiting(spark, broker.bootstrap, sides, rounds)
    return figures


@contextmanager
def _session() -> "Iterator[SparkSession]":
    # Python workers find the ceiling's source here.
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    settings = {"spark__driver__extraJavaOptions": "", "spark__driver__memory": "2g"}
    settings["spark__python__unix__domain__socket__enabled"] = "false"
    if spark_connector.missing() is None:
        settings["spark__jars"] = spark_connector.jars()
    with spark_session("local[2]", **settings) as spark:
        from perf.peers.spark_prebuilt import Prebuilt

        spark.dataSource.register(Prebuilt)
        yield spark


class Bench:
    """A session, a broker, and who is compared."""

    def __init__(
        self, spark: "SparkSession", bootstrap: str, sides: list[Side], rounds: int
    ) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._sides = sides
        self._rounds = rounds

    def reading(self, size: int, codec: str, count: int) -> list[Figure]:
        """Rows a second into a sink that drops them."""
        figures: list[Figure] = []
        with self._topic() as topic:
            rdkafka.produce(self._bootstrap, topic, count, size, compression=codec)
            options = {"kafka.bootstrap.servers": self._bootstrap, "subscribe": topic}
            prebuilt = {"rows": str(count), "size": str(size), "partitions": str(PARTITIONS)}

            def read(side: Side, stream: bool, two: bool) -> float:
                chosen = prebuilt if side is PREBUILT else options
                if stream:
                    return drop_stream(side.stream(self._spark, chosen, two=two), count)
                return drop_batch(side.batch(self._spark, chosen, two=two))

            self._check(options, count)
            for stream in (False, True):
                for two in (False, True):
                    kind, width = "stream" if stream else "batch", "two columns" if two else "all"
                    case = f"{kind}, {size} B {codec}, {width}"

                    def work(side: Side, stream: bool = stream, two: bool = two) -> float:
                        return read(side, stream, two)

                    figures += self._compare(f"read {case}", count, work)
        return figures

    def writing(self, size: int, codec: str, count: int) -> list[Figure]:
        """Rows a second into a topic: exactly once, at least once, and as the connector does."""
        digits = f"substr(sha2(CAST(id AS STRING), 512), 1, {size // 2})"
        value = f"rpad({digits}, {size}, 'x') AS value"
        frame = self._spark.range(0, count, 1, PARTITIONS).selectExpr(value).cache()
        frame.count()
        exact = Figure(f"write exactly once, {size} B {codec}", "rows/s")
        least = Figure(f"write at least once, {size} B {codec}", "rows/s")
        common = {"kafka.bootstrap.servers": self._bootstrap, "kafka.compression.type": codec}

        def write(name: str, **options: str) -> float:
            with self._topic() as topic:
                seconds = write_batch(frame, name, {**common, "topic": topic, **options})
                return count / seconds

        for turn in range(self._rounds + 1):
            found: dict[str, float] = {
                "exact": write("qbus"),
                "least": write("qbus", **{"qbus.exactly.once": "false"}),
            }
            if JVM in self._sides:
                found["jvm"] = write("kafka")
            if turn == 0:
                continue
            exact.add("qbus", found["exact"])
            least.add("qbus", found["least"])
            if "jvm" in found:
                exact.add("kafka", found["jvm"])
                least.add("kafka", found["jvm"])
        frame.unpersist()
        _tell(exact)
        return [exact, least]

    def _compare(self, case: str, count: int, work: Callable[[Side], float]) -> list[Figure]:
        """All sides in turn, after a round that warms them up."""
        beside = Figure(case, "rows/s")
        ceiling = Figure(f"{case} / ceiling", "rows/s")
        memory = Figure(f"{case}: each Python worker", "MB at most", lower_is_better=True)
        for turn in range(self._rounds + 1):
            for side in self._sides:
                with WorkersMemory() as workers:
                    rate = count / work(side)
                if turn == 0:
                    continue
                if side is not PREBUILT:
                    beside.add(side.name, rate)
                if side is not JVM:
                    ceiling.add(side.name, rate)
                    memory.add(side.name, workers.each_mb)
        _tell(beside)
        return [beside, ceiling, memory]

    def _check(self, options: dict[str, str], count: int) -> None:
        for side in self._sides:
            if side is not PREBUILT:
                rows = side.batch(self._spark, options, two=True).count()
                if rows != count:
                    raise RuntimeError(f"{side.name} reads {rows} rows, not {count}")

    @contextmanager
    def _topic(self) -> Iterator[str]:
        topic = f"spark-{next(_topics)}"
        rdkafka.create_topic(self._bootstrap, topic, PARTITIONS)
        yield topic
        rdkafka.delete_topic(self._bootstrap, topic)


def _tell(figure: Figure) -> None:
    """How far it is: all of it takes minutes."""
    print(f"{figure.case}: {figure.ratio or 0:.2f}", file=sys.stderr)
