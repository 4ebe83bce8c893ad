"""How long it takes from a record's sending until a streaming query on Spark has its row."""

import tempfile
import threading
import time
from typing import TYPE_CHECKING

from perf import rdkafka
from perf.report import Figure
from perf.spark_sides import PREBUILT, Side
from qbus import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 25
_PATIENCE = 60.0
_WARM_UP = 5


def waiting(spark: "SparkSession", bootstrap: str, sides: list[Side], rounds: int) -> list[Figure]:
    """One record after the other, each in a micro-batch of its own that fetches nothing else."""
    figures = {
        "p50": Figure("from a record's sending to its row, p50", "ms", lower_is_better=True),
        "p90": Figure("from a record's sending to its row, p90", "ms", lower_is_better=True),
    }
    for turn in range(rounds):
        for side in sides:
            if side is PREBUILT:
                continue
            topic = f"latency-{side.name}-{turn}"
            rdkafka.create_topic(bootstrap, topic)
            delays = sorted(_delays(spark, bootstrap, topic, side))
            figures["p50"].add(side.name, delays[len(delays) // 2] * 1000)
            figures["p90"].add(side.name, delays[len(delays) * 9 // 10] * 1000)
    return list(figures.values())


class Taken:
    """Counts the rows of micro-batches."""

    def __init__(self) -> None:
        self._rows = 0
        self._changed = threading.Condition()

    def __call__(self, batch: "DataFrame", _number: int) -> None:
        """Take the rows of a micro-batch."""
        rows = len(batch.select("value").collect())
        with self._changed:
            self._rows += rows
            self._changed.notify()

    def wait_for(self, rows: int) -> bool:
        """Whether so many came in a minute."""
        with self._changed:
            return self._changed.wait_for(lambda: self._rows >= rows, _PATIENCE)


def _delays(spark: "SparkSession", bootstrap: str, topic: str, side: Side) -> list[float]:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    taken = Taken()
    delays = []
    with (
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as checkpoint,
        Producer(bootstrap) as producer,
    ):
        frame = side.stream(spark, options, two=True)
        writer = frame.writeStream.foreachBatch(taken).option("checkpointLocation", checkpoint)
        query = writer.start()
        try:
            for number in range(_WARM_UP + RECORDS):
                sent = time.perf_counter()
                producer.send(topic, b"%d" % number)
                producer.flush()
                if not taken.wait_for(number + 1):
                    raise RuntimeError(f"record {number} does not come: {query.exception()}")
                delays.append(time.perf_counter() - sent)
        finally:
            query.stop()
    return delays[_WARM_UP:]
