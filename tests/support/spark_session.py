"""Spark sessions for tests: quick to start, small, and on 127.0.0.1 only."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What makes the micro-batches of small tests short, and keeps Spark to itself.
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def missing() -> str | None:
    """Why no Spark can be run here, if so."""
    if shutil.which("java") is None:
        return "Spark needs Java"
    if find_spec("pyspark") is None:
        return "pyspark is not installed"
    return None


@contextmanager
def spark_session(master: str = "local[2,3]", **settings: str) -> "Iterator[SparkSession]":
    """A session that has a JVM of its own; ``settings`` have ``__`` for dots.

    ``local[2,3]`` runs two tasks at once, and a failed one up to three times.
    """
    from pyspark.sql import SparkSession

    # Python workers are of the same environment as the test, wherever they are started.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # As installed, with compiled bytecode: Spark waits for a worker's start for 10 s, not longer.
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    builder = SparkSession.builder.master(master).appName("qbus tests")
    chosen = {name.replace("__", "."): value for name, value in settings.items()}
    for name, value in {**SETTINGS, **chosen}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
        _end_jvm()


def _end_jvm() -> None:
    """End the JVM too: settings such as jars are those of its start."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None
