"""Results that go to a topic: what records look like, and that each is there once."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbus import Admin, Producer
from qbus.clients.pipelines.config import ABUSE, STATS
from qbus.clients.pipelines.run import Mode
from tests.support.broker_process import BrokerProcess

from .jobs import finished, told
from .test_sink import records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATE = NOON + timedelta(days=1)


def line(when: datetime, client: str, size: int | str, path: str = "/") -> bytes:
    time = when.strftime("%d/%b/%Y:%H:%M:%S +0000")
    return f'{client} - - [{time}] "GET {path} HTTP/1.1" 200 {size}'.encode()


def put(producer: Producer, topic: str, *lines: bytes) -> None:
    for number, one in enumerate(lines):
        producer.send(topic, one, partition=number % 2)
    producer.flush()


@pytest.fixture
def out(admin: Admin, topic: str) -> str:
    """A topic for results."""
    name = f"{topic}-results"
    admin.create_topic(name, partitions=2)
    return name


def messages(broker: BrokerProcess, topic: str) -> list[tuple[str, dict[str, Any]]]:
    """Keys and values."""
    found = [(record.key or b"", record.value or b"") for record in records(broker, topic)]
    return sorted(((key.decode(), json.loads(value)) for key, value in found), key=repr)


def forget_last_commit(checkpoint: Path) -> None:
    """Restore the state of a process that was killed between writing results and committing."""
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    (checkpoint / "commits" / f"{last}").unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)


def test_statistics_are_json_with_the_name_as_key(
    spark: "SparkSession", broker: BrokerProcess, topic: str, out: str, producer: Producer,
    tmp_path: Path,
) -> None:  # fmt: skip
    from qbus.clients.pipelines.line_jobs import run_stats

    statistic = {
        "name": "pages", "by": ["user", "path"], "sum": ["bytes"], "percentiles_of": ["bytes"],
        "percentiles": [0.5, 0.999],
    }  # fmt: skip
    stated = told(broker, topic, statistic=[statistic], checkpoint=str(tmp_path))
    config = STATS.read({**stated, "output": {"topic": out}})
    put(producer, topic, line(NOON, "a", 5, "/\u00fc?x"), line(NOON, "b", "-", "/\u00fc"))
    put(producer, topic, line(NOON + timedelta(hours=1), "a", 7), line(LATE, "a", 1))
    finished(run_stats, spark, config)
    first = {
        "statistic": "pages",
        "window_start": "2026-01-01T12:00:00.000Z",
        "window_end": "2026-01-01T12:01:00.000Z",
        "user": None,
        "path": "/\u00fc",
        "count": 2,
        "per_second": 2 / 60,
        "bytes_sum": 5,
        "bytes_per_second": 5 / 60,
        "bytes_p50": 0,
        "bytes_p99_9": 5,
    }
    found = messages(broker, out)
    assert found[0] == ("pages", first)
    assert list(found[0][1]) == list(first)
    assert [(key, value["bytes_sum"]) for key, value in found] == [("pages", 5), ("pages", 7)]

    forget_last_commit(tmp_path / "pages")
    put(producer, topic, line(LATE + timedelta(days=1), "a", 9))
    finished(run_stats, spark, config)
    counts = Counter(value["window_start"] for _, value in messages(broker, out))
    hours = ("2026-01-01T12", "2026-01-01T13", "2026-01-02T12")
    assert counts == {f"{hour}:00:00.000Z": 1 for hour in hours}


def test_alerts_are_json_with_the_client_as_key(
    spark: "SparkSession", broker: BrokerProcess, topic: str, out: str, producer: Producer,
    tmp_path: Path,
) -> None:  # fmt: skip
    from qbus.clients.pipelines.line_jobs import run_abuse

    stated = told(broker, topic, checkpoint=str(tmp_path), output={"topic": out})
    stated |= {"window": "1 minute", "slide": "1 minute", "limits": {"bytes": 100}}
    config = ABUSE.read(stated)
    minutes = [NOON + timedelta(minutes=minute) for minute in range(3)]
    put(producer, topic, *(line(when, "bad", 120) for when in minutes), line(NOON, "good", 100))
    put(producer, topic, line(LATE, "good", 1))
    finished(run_abuse, spark, config)
    alert = {
        "window_start": "2026-01-01T12:00:00.000Z",
        "window_end": "2026-01-01T12:01:00.000Z",
        "client": "bad",
        "reasons": ["bytes over limit"],
        "ongoing": False,
        "requests": 1,
        "requests_per_second": 1 / 60,
        "bytes": 120,
        "bytes_per_second": 2.0,
    }
    found = messages(broker, out)
    assert found == [("bad", alert)]
    assert list(found[0][1]) == list(alert)

    forget_last_commit(tmp_path / "abuse")
    put(producer, topic, line(LATE, "worse", 500), line(LATE + timedelta(days=1), "good", 1))
    finished(run_abuse, spark, config)
    assert [key for key, _ in messages(broker, out)] == ["bad", "worse"]


def test_a_batch_run_refuses_a_directory_with_results(
    spark: "SparkSession", broker: BrokerProcess, topic: str, producer: Producer, tmp_path: Path
) -> None:
    from qbus.clients.pipelines.line_jobs import run_stats
    from qbus.errors import ConfigError

    put(producer, topic, line(NOON, "a", 5))
    stated = told(broker, topic, statistic=[{"name": "all"}], output={"path": str(tmp_path / "r")})
    config = STATS.read(stated)
    finished(run_stats, spark, config, Mode.BATCH)
    with pytest.raises(ConfigError, match="has results already"):
        finished(run_stats, spark, config, Mode.BATCH)
    assert spark.read.parquet(str(tmp_path / "r" / "all")).count() == 1
