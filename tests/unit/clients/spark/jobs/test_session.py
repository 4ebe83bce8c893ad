"""What has to be there, and hold, before a session is started."""

import pytest

from qbus.clients.spark.jobs import session
from qbus.clients.spark.jobs.config import ArchiveConfig
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
