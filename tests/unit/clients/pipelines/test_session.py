"""What has to be there, and hold, before a session is started."""

import os
from pathlib import Path

import pytest

from qbus.clients.pipelines import session
from qbus.clients.pipelines.config import ArchiveConfig
from qbus.errors import ConfigError

BERLIN = {"spark.sql.session.timeZone": "Europe/Berlin"}


def test_a_session_in_another_time_zone_is_refused_wherever_it_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="'Europe/Berlin': expected UTC"):
        session.check(ArchiveConfig(), master=None, settings=BERLIN)
    with pytest.raises(ConfigError, match="'Europe/Berlin': expected UTC"):
        session.check(ArchiveConfig(spark=tuple(BERLIN.items())), master=None, settings={})
    session.check(ArchiveConfig(), master=None, settings={"spark.sql.session.timeZone": "UTC"})


def test_java_is_needed_where_spark_starts_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="Java 17 or later"):
        session.check(ArchiveConfig(), master="local[1]", settings={})
    session.check(ArchiveConfig(), master=None, settings={})


class Builder:
    """Makes a session that is the home which Spark is started from."""

    def __getattr__(self, _name: str) -> object:
        return lambda *_: self

    def getOrCreate(self) -> Path:
        return Path(os.environ["SPARK_HOME"])


def home(monkeypatch: pytest.MonkeyPatch, master: str) -> Path:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", Builder())
    found = session.start(ArchiveConfig(), "archive", master=master, settings={})
    assert isinstance(found, Path)
    return found


def test_python_workers_here_import_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "")  # so that it is restored
    monkeypatch.delenv("SPARK_HOME")
    found = home(monkeypatch, "local[1]")
    assert (found / "jars").is_dir()
    assert not (found / "python" / "lib" / "pyspark.zip").exists()


def test_a_home_of_the_user_s_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert home(monkeypatch, "local[1]") == Path("/opt/spark")
