"""A standalone Spark: what is needed for it, how it is run, and what its master tells."""

from pathlib import Path

import pytest

from qbus.local_cluster import LocalClusterError, spark
from qbus.local_cluster.settings import SparkSettings
from tests.support.ports import free_port

SETTINGS = SparkSettings(7077, 8080, (7001, 7002))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PySpark with the one jar that is looked for."""
    home = tmp_path / "pyspark"
    (home / "jars").mkdir(parents=True)
    (home / "jars" / "spark-core_2.13-4.3.0.jar").touch()
    monkeypatch.setattr(spark, "pyspark_home", lambda: home)
    return home


def fake_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "java", lambda user, oldest: "java")


def test_without_pyspark_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "pyspark_home", lambda: tmp_path)
    with pytest.raises(LocalClusterError, match=r"pip install 'qbus\[spark\]'"):
        spark.master_command(SETTINGS, tmp_path / "node")


def test_it_needs_a_newer_java_than_zookeeper(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalClusterError, match="is Java 11: Spark needs 17"):
        spark.master_command(SETTINGS, tmp_path / "node")


def test_nodes_are_known_again_by_their_directory(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(monkeypatch)
    directory = tmp_path / "node"
    for command in (
        spark.master_command(SETTINGS, directory),
        spark.worker_command(SETTINGS, 2, directory),
    ):
        # What `env` is told is gone from the command line once it has become Spark.
        arguments = command[command.index(str(directory / "home/bin/spark-class")) :]
        assert any(word.startswith(f"{directory}/") for word in arguments)


def test_python_workers_find_no_archive_to_import_from(home: Path, tmp_path: Path) -> None:
    (home / "python" / "lib").mkdir(parents=True)
    for _ in range(2):
        linked = spark.linked_home(home, tmp_path / "linked")
        assert (linked / "jars" / "spark-core_2.13-4.3.0.jar").exists()
        assert not (linked / "python").exists()


def test_a_worker_has_a_port_of_its_own_and_the_master_s_address(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(monkeypatch)
    command = spark.worker_command(SETTINGS, 2, tmp_path)
    assert command[command.index("--port") + 1] == "7002"
    assert command[-1] == "spark://127.0.0.1:7077"


def test_a_master_that_is_not_there_tells_nothing() -> None:
    assert spark.describe(SparkSettings(free_port(), free_port(), ())) is None
    assert spark.workers(None) == {}


def test_only_workers_that_live_count() -> None:
    told = {"workers": [{"port": 1, "state": "ALIVE"}, {"port": 2, "state": "DEAD"}]}
    assert list(spark.workers(told)) == [1]
