"""The first read of a new session of Spark: what a user of an ordinary pip environment waits for.

Nothing is prepared: PySpark lies where pip put it, so its Python workers are imported from an
archive, and the session has its own settings. Each reading is a process of its own, which starts
the session, reads a topic into nothing, and does so again. Beside it Spark's own Kafka connector.

``python -m perf.spark_start FORMAT BOOTSTRAP TOPIC``: one such process. Prints one JSON object.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from perf import rdkafka
from perf.peers import spark_connector
from perf.report import Figure
from perf.servers import MEMORY
from perf.spark_sides import JVM, QBUS, Side, drop_batch
from tests.support.broker_process import BrokerProcess
from tests.support.spark_session import missing

ROWS: Final = 2_000_000
SIZE: Final = 100
PARTITIONS: Final = 2
CASES: Final = {
    "session": "start of the session",
    "load": "`load()` of the first frame",
    "first": "first read of {:,} rows",
    "second": "second read, in the same session",
    "all": "start of the process to the end of the first read",
}
_TOPIC: Final = "start"
_PATIENCE_S: Final = 300


def run(rounds: int, scale: float) -> list[Figure]:
    """Start a session, read, and read again: with each format in turn."""
    if reason := missing():
        print(f"left out: {reason}", file=sys.stderr)
        return []
    sides = [QBUS]
    if reason := spark_connector.missing():
        print(f"without Spark's own connector: {reason}", file=sys.stderr)
    else:
        sides.append(JVM)
    count = int(ROWS * scale)
    figures = {
        case: Figure(name.format(count), "s", lower_is_better=True) for case, name in CASES.items()
    }
    with (
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory,
        BrokerProcess(Path(directory), *MEMORY.qbus) as broker,
    ):
        rdkafka.create_topic(broker.bootstrap, _TOPIC, PARTITIONS)
        rdkafka.produce(broker.bootstrap, _TOPIC, count, SIZE)
        for turn in range(rounds + 1):
            for side in sides:
                for case, seconds in _in_a_process(side, broker.bootstrap).items():
                    if turn:  # the first brings Spark's jars into the page cache
                        figures[case].add(side.name, seconds)
    return list(figures.values())


def _in_a_process(side: Side, bootstrap: str) -> dict[str, float]:
    command = [sys.executable, "-m", "perf.spark_start", side.name, bootstrap, _TOPIC]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment.pop("SPARK_HOME", None)
    started = time.perf_counter()
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, env=environment, timeout=_PATIENCE_S
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    found["all"] = found.pop("read_at") - started
    return found


def main(name: str, bootstrap: str, topic: str) -> None:
    """Read twice in a session of this process's own."""
    from pyspark.sql import SparkSession

    side = {one.name: one for one in (QBUS, JVM)}[name]
    started = time.perf_counter()
    builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.ui.enabled", "false")
    if side is JVM:
        builder = builder.config("spark.jars", spark_connector.jars())
    spark = builder.getOrCreate()
    found = {"session": time.perf_counter() - started}
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    began = time.perf_counter()
    frame = side.batch(spark, options, two=False)
    found["load"] = time.perf_counter() - began
    found["first"] = drop_batch(frame)
    found["read_at"] = time.perf_counter()
    found["second"] = drop_batch(side.batch(spark, options, two=False))
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
