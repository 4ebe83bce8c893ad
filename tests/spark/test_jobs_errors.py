"""Pipelines that cannot go on say why in a line, and what to do."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbus import Admin, Producer
from qbus.clients.pipelines.config import STATS
from qbus.clients.pipelines.failures import reason
from tests.support.broker_process import BrokerProcess

from . import jobs
from .jobs import finished, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def archive(spark: "SparkSession", broker: BrokerProcess, tmp_path: Path) -> Callable[..., None]:
    """Archive topics to the same path, to the end of what there is."""

    def run(*topics: str, **stated: Any) -> None:
        jobs.archive(spark, told(broker, *topics, path=str(tmp_path), **stated))

    return run


def failure(run: Callable[..., None], *topics: str, **stated: Any) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark's or ours
        run(*topics, **stated)
    found = reason(raised.value)
    assert "\n" not in found
    return found


def put(producer: Producer, topic: str) -> None:
    producer.send(topic, b"value", partition=0)
    producer.flush()


@pytest.mark.nightly
@pytest.mark.parametrize("text", ["nothing", "v1\n{}\n{"])
def test_a_checkpoint_that_was_damaged(
    archive: Callable[..., None], producer: Producer, topic: str, tmp_path: Path, text: str
) -> None:
    put(producer, topic)
    archive(topic)
    offsets = tmp_path / "_checkpoint" / "offsets"
    last = max(offsets.glob("[0-9]*"))
    last.with_name(f".{last.name}.crc").unlink()
    last.write_text(text)
    put(producer, topic)
    assert "or another --checkpoint" in failure(archive, topic)


def test_a_checkpoint_of_another_topic(
    archive: Callable[..., None], producer: Producer, admin: Admin, topic: str
) -> None:
    admin.create_topic(f"{topic}-other", partitions=1)
    put(producer, topic)
    put(producer, f"{topic}-other")
    archive(topic)
    assert f"{topic}-0 no longer exists or is no longer subscribed to" in failure(
        archive, f"{topic}-other"
    )


@pytest.mark.nightly
def test_a_checkpoint_of_another_statistic(
    spark: "SparkSession", broker: BrokerProcess, producer: Producer, topic: str, tmp_path: Path
) -> None:
    from qbus.clients.pipelines.line_jobs import run_stats

    def run(**statistic: Any) -> None:
        stated = told(broker, topic, statistic=[{"name": "s", **statistic}])
        config = STATS.read({**stated, "output": {"path": str(tmp_path)}})
        finished(run_stats, spark, config)

    put(producer, topic)
    run()
    put(producer, topic)
    assert "or another --checkpoint" in failure(run, by=["status"], sum=["bytes"])


def test_a_directory_of_another_stream_is_refused(
    archive: Callable[..., None], producer: Producer, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "_spark_metadata" / "0").write_text('v1\n{"path": "file:/a"}')
    put(producer, topic)
    assert "was not written by this pipeline" in failure(archive, topic)


def test_a_topic_that_is_not_there(archive: Callable[..., None], topic: str) -> None:
    assert "no-such-topic" in failure(archive, topic, "no-such-topic")


def test_a_broker_that_is_away(archive: Callable[..., None], topic: str) -> None:
    options = {"topics": [topic], "options": {"kafka.request.timeout.ms": 1000}}
    assert "127.0.0.1:1" in failure(archive, bootstrap="127.0.0.1:1", source=options)
