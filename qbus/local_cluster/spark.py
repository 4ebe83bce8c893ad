"""Runs and queries a standalone Spark from the pip package."""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

from qbus.extras import lacks
from qbus.local_cluster.java import java, pyspark_home
from qbus.local_cluster.layout import LocalClusterError
from qbus.local_cluster.settings import HOST, SparkSettings

OLDEST_JAVA = 17
"""Spark 4 runs on Java 17 and later (its documentation's overview)."""

WORKERS = 2

_CORES, _MEMORY = 2, "2g"  # of a worker: room for an executor of each of two applications
_SETTINGS = {
    # An application that does not set its number of cores leaves room for another one.
    "spark.deploy.defaultCores": WORKERS,
    "spark.master.rest.enabled": "false",
    "spark.worker.cleanup.enabled": "true",
}
_CLASSES = "org.apache.spark.deploy"
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def master_command(settings: SparkSettings, directory: Path) -> list[str]:
    """The command line of the master. Raises LocalClusterError if Spark or Java is missing."""
    return [
        *_spark_class(directory, f"{_CLASSES}.master.Master"),
        *("--host", HOST, "--port", str(settings.master_port)),
        *("--webui-port", str(settings.page_port)),
    ]


def worker_command(settings: SparkSettings, number: int, directory: Path) -> list[str]:
    """The command line of a worker; its applications' files go to ``directory``."""
    return [
        *_spark_class(directory, f"{_CLASSES}.worker.Worker"),
        *("--host", HOST, "--port", str(settings.worker_ports[number - 1]), "--webui-port", "0"),
        *("--cores", str(_CORES), "--memory", _MEMORY, "--work-dir", str(directory / "work")),
        settings.master,
    ]


def describe(settings: SparkSettings, timeout: float = 2.0) -> dict[str, Any] | None:
    """The master's status, its page as JSON; None while it does not serve."""
    with suppress(OSError, HTTPException, ValueError):
        with urllib.request.urlopen(f"{settings.page}/json/", timeout=timeout) as answer:  # noqa: S310 - http
            status = json.load(answer)
        if isinstance(status, dict) and status.get("status") == "ALIVE":
            return status
    return None


def workers(status: dict[str, Any] | None) -> dict[int, dict[str, Any]]:
    """The live workers in the master's status, by port."""
    found = status["workers"] if status is not None else []
    return {worker["port"]: worker for worker in found if worker["state"] == "ALIVE"}


def linked_home(pyspark: Path, directory: Path) -> Path:
    """Make ``directory`` a SPARK_HOME without the Python of ``pyspark``, and return it.

    If ``python/lib/pyspark.zip`` is there, Python workers import pyspark from that archive and
    compile it at each start, which takes a second. Without it they import the installed package.
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
        raise LocalClusterError(lacks("Spark needs pyspark", "spark"))
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
    # Executors run the first python3 on the PATH: it must have Qbus.
    yield "PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
