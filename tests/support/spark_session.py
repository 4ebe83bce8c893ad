"""Spark sessions for tests: quick to start, small, and on 127.0.0.1 only."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from qbus.local_cluster.spark import linked_home
from tests.support.server_process import StartupTimeout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORKER_TIMEOUT = "Python worker failed to connect back"
"""Spark gives a Python worker ten seconds to start; no setting changes that."""
_START_TIMEOUT = "java.util.concurrent.TimeoutException"

_QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

#: What makes the micro-batches of small tests short, and keeps Spark to itself.
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": _QUICK_JVM,
    "spark.executor.extraJavaOptions": _QUICK_JVM,
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


def has_timed_out(error: object) -> bool:
    """Whether an error, or the text of one, says that a process of Spark did not start in time."""
    return _WORKER_TIMEOUT in str(error)


@contextmanager
def spark_session(master: str = "local[2,3]", **settings: str) -> "Iterator[SparkSession]":
    """A session that has a JVM of its own; ``settings`` have ``__`` for dots.

    ``local[2,3]`` runs two tasks at once, and a failed one up to three times. Raises
    :class:`StartupTimeout` if Spark does not start in time.
    """
    from pyspark.sql import SparkSession

    with _quick_python_workers():
        builder = SparkSession.builder.master(master).appName("qbus tests")
        chosen = {name.replace("__", "."): value for name, value in settings.items()}
        for name, value in {**SETTINGS, **chosen}.items():
            builder = builder.config(name, value)
        try:
            session = builder.getOrCreate()
        except Exception as error:
            if _START_TIMEOUT in str(error) or has_timed_out(error):
                raise StartupTimeout(f"Spark did not start in time: {error}") from error
            raise
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            session.stop()
            _end_jvm()


@contextmanager
def _quick_python_workers() -> Iterator[None]:
    """Have Spark start its Python workers as quickly as it goes: it waits for them for 10 s."""
    import pyspark

    with tempfile.TemporaryDirectory(prefix="spark-home-") as home:
        chosen = {
            "SPARK_HOME": str(linked_home(Path(pyspark.__path__[0]), Path(home))),
            # The same environment as the test's, wherever they are started.
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            # As installed, with compiled bytecode, whatever the tests run under.
            "PYTHONDONTWRITEBYTECODE": "",
        }
        before = {name: os.environ.get(name) for name in chosen}
        _set(chosen)
        try:
            yield
        finally:
            _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _end_jvm() -> None:
    """End the JVM too: settings such as jars are those of its start."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None
