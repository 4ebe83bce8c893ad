"""The content of an archive, its directories, and two writers at once."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qbus import Producer
from tests.support.broker_process import BrokerProcess

from .jobs import archive, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)


def test_records_lie_by_the_hours_of_a_time_zone_and_are_whole(
    spark: "SparkSession", broker: BrokerProcess, topic: str, producer: Producer, tmp_path: Path
) -> None:
    times = [datetime(2026, 3, 1, 14, 59, tzinfo=UTC), datetime(2026, 3, 1, 15, tzinfo=UTC)]
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (None, b"", []),
        (b"", None, [("h", None), ("h", b"\xff")]),
    ]
    for when, (value, key, headers) in zip(times, records, strict=True):
        at = int(when.timestamp() * 1000)
        producer.send(topic, value, key, headers, partition=1, timestamp=at)
    producer.flush()
    archive(spark, told(broker, topic, path=str(tmp_path), time_zone="Asia/Tokyo"))
    found = spark.read.parquet(str(tmp_path)).orderBy("offset")
    rows = found.selectExpr("*", "unix_millis(timestamp) AS at", "string(date) AS day").collect()
    assert [(row.day, row.hour) for row in rows] == [("2026-03-01", 23), ("2026-03-02", 0)]
    assert [row["at"] for row in rows] == [int(when.timestamp() * 1000) for when in times]
    assert [
        (row.value, row.key, [tuple(header) for header in row.headers or []]) for row in rows
    ] == records
    assert {(row.topic, row.partition) for row in rows} == {(topic, 1)}


@pytest.mark.nightly
def test_two_archives_of_a_topic_at_one_path(
    spark: "SparkSession", broker: BrokerProcess, topic: str, producer: Producer, tmp_path: Path
) -> None:
    producer.send_many(topic, [b"%d" % number for number in range(600)])
    producer.flush()

    def run(name: str) -> None:
        stated = told(broker, topic, name=name, path=str(tmp_path / "archive"))
        stated |= {"checkpoint": str(tmp_path / name), "compaction": {"files": 2}}
        stated["source"]["batch_records"] = 150
        archive(spark, stated)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, ["one", "other"]))
    values = spark.read.parquet(str(tmp_path / "archive")).select("value").collect()
    assert Counter(int(row[0]) for row in values) == Counter(range(600))
