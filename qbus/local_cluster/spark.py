"""A standalone Spark out of the pip package: how its nodes are run, and what the master tells."""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

from qbus.local_cluster.errors import LocalClusterError
from qbus.local_cluster.java import java, pyspark_home
from qbus.local_cluster.settings import HOST, SparkSettings

OLDEST_JAVA = 17
"""Spark 4 runs on Java 17 and later (its documentation's overview)."""

WORKERS = 2

_CORES, _MEMORY = 2, "2g"  # of a worker: two applications fit in, each with an executor there
_SETTINGS = {
    # An application that does not say how many cores it wants leaves room for another one.
    "spark.deploy.defaultCores": WORKERS,
    "spark.master.rest.enabled": "false",
    "spark.worker.cleanup.enabled": "true",
}
_CLASSES = "org.apache.spark.deploy"
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def master_command(settings: SparkSettings, directory: Path) -> list[str]:
    """The command line of the master; LocalClusterError says what is not installed."""
    return [
        *_spark_class(directory, f"{_CLASSES}.master.Master"),
        *("--host", HOST, "--port", str(settings.master_port)),
        *("--webui-port", str(settings.page_port)),
    ]


def worker_command(settings: SparkSettings, number: int, directory: Path) -> list[str]:
    """The command line of a worker, which keeps what it is given to run in ``directory``."""
    return [
        *_spark_class(directory, f"{_CLASSES}.worker.Worker"),
        *("--host", HOST, "--port", str(settings.worker_ports[number - 1]), "--webui-port", "0"),
        *("--cores", str(_CORES), "--memory", _MEMORY, "--work-dir", str(directory / "work")),
        settings.master,
    ]


def describe(settings: SparkSettings, timeout: float = 2.0) -> dict[str, Any] | None:
    """What the master's page tells as JSON: workers, applications; None while it does not serve."""
    with suppress(OSError, HTTPException, ValueError):
        with urllib.request.urlopen(f"{settings.page}/json/", timeout=timeout) as answer:  # noqa: S310 - http
            told = json.load(answer)
        if isinstance(told, dict) and told.get("status") == "ALIVE":
            return told
    return None


def workers(told: dict[str, Any] | None) -> dict[int, dict[str, Any]]:
    """The workers that are alive, by the port on which each listens."""
    found = told["workers"] if told is not None else []
    return {worker["port"]: worker for worker in found if worker["state"] == "ALIVE"}


def linked_home(pyspark: Path, directory: Path) -> Path:
    """Make ``directory`` a SPARK_HOME with all but the Python of ``pyspark``, and return it.

    With ``python/lib/pyspark.zip`` in there, Spark has its Python workers import pyspark out of
    that archive and compile it each time: a second of processor time for every start. Without, they
    import what is installed, which is the same.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars"):
        link = directory / name
        link.unlink(missing_ok=True)
        link.symlink_to(pyspark / name)
    return directory


def _spark_class(directory: Path, main: str) -> list[str]:
    home = pyspark_home()
    if home is None or not any(home.glob("jars/spark-core_*.jar")):
        raise LocalClusterError("Spark is missing: pip install 'qbus[spark]'")
    java("Spark", OLDEST_JAVA)
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "spark.conf"
    config.write_text("".join(f"{key} {value}\n" for key, value in _SETTINGS.items()))
    linked = linked_home(home, directory / "home")
    environment = [f"{key}={value}" for key, value in _environment(linked, directory)]
    script = str(linked / "bin" / "spark-class")
    return ["/usr/bin/env", *environment, script, main, "--properties-file", str(config)]


def _environment(home: Path, directory: Path) -> Iterator[tuple[str, str]]:
    yield "SPARK_HOME", str(home)
    yield "SPARK_LOCAL_IP", HOST
    yield "SPARK_LOCAL_DIRS", str(directory / "local")
    yield "SPARK_DAEMON_MEMORY", "512m"
    yield "SPARK_DAEMON_JAVA_OPTS", _JVM
    # Executors run the first python3 that they find, which must be one that has Qbus.
    yield "PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
