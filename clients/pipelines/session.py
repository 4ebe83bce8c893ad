"""The Spark session of a pipeline."""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from qbus.errors import ConfigError
from qbus.extras import lacks
from qbus.local_cluster.spark import linked_home

from .config import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIME_ZONE = "spark.sql.session.timeZone"

_ALWAYS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # few readers support INT96
    _TIME_ZONE: "UTC",  # dates and hours are computed from UTC
    "spark.sql.adaptive.enabled": "true",
}

_ON_THIS_MACHINE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": str(min(8, os.cpu_count() or 1)),
}
"""Settings for a small local session; ``spark-submit`` sets up others."""

_JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
_LOG4J = """\
rootLogger.level = error
logger.repl.name = org.apache.spark.api.python.PythonGatewayServer
logger.repl.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{short}
"""


def check(config: Pipeline, *, master: str | None, settings: Mapping[str, str]) -> None:
    """Raise :class:`~qbus.errors.ConfigError` if no session can start, or has a wrong time zone.

    master, settings: as :func:`start`.
    """
    if find_spec("pyspark") is None:
        raise ConfigError(lacks("pipelines need pyspark", "spark"))
    if master is not None and not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise ConfigError(
            "Spark needs Java 17 or later: java is not in PATH, and JAVA_HOME is not set"
        )
    zone = {**dict(config.spark), **settings}.get(_TIME_ZONE, "UTC")
    if zone != "UTC":
        raise ConfigError(f"{_TIME_ZONE} = {zone!r}: expected UTC: pipelines compute in UTC")


def start(
    config: Pipeline, name: str, *, master: str | None, settings: Mapping[str, str]
) -> "SparkSession":
    """Start a session, or use that of ``spark-submit``. Call :func:`check` before.

    master: which Spark to run on, such as ``local[2]``; None: as ``spark-submit`` was told.
    settings: settings of Spark, which override the configuration.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra

    builder = SparkSession.builder.appName(f"qbus-{name}")
    chosen = dict(_ALWAYS)
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            chosen |= _ON_THIS_MACHINE
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            if "SPARK_HOME" not in os.environ:
                os.environ["SPARK_HOME"] = _quick_home()
    chosen |= {**dict(config.spark), **settings}
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with _quiet() if master is not None else nullcontext():
        return builder.getOrCreate()


def _quick_home() -> str:
    """A temporary SPARK_HOME from which Python workers start quickly.

    Spark gives each worker ten seconds to start, which may be too short on a busy machine.
    """
    import pyspark  # noqa: PLC0415 - an extra

    directory = tempfile.mkdtemp(prefix="qbus-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return str(linked_home(Path(pyspark.__path__[0]), Path(directory)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Have a driver that starts in this context log errors only."""
    with tempfile.NamedTemporaryFile("w", suffix="-log4j2.properties") as file:
        file.write(_LOG4J)
        file.flush()
        before = os.environ.get(_JAVA_OPTIONS)
        os.environ[_JAVA_OPTIONS] = f"{before or ''} -Dlog4j2.configurationFile={file.name}"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_JAVA_OPTIONS]
            else:
                os.environ[_JAVA_OPTIONS] = before
