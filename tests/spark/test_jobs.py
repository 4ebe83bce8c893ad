"""The pipelines on Spark: what they compute is what a loop over the same lines computes."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbus import Admin, Producer
from qbus.clients.pipelines.config import ABUSE, AUDIT, STATS
from qbus.clients.pipelines.run import Mode
from qbus.clients.pipelines.times import written
from tests.support import access_log
from tests.support.access_log import Hit
from tests.support.broker_process import BrokerProcess

from .jobs import archive, finished, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = access_log.generated(3000)
HITS = list(access_log.hits(LINES))
HOSTILE = [b"", b"\xff\xfe", b'1.2.3.4 - - [99/Foo/2026:00:00:00 +0000] "GET / H" 200 1', b"\0" * 9]
#: So late that all windows are complete, which its own then is not.
LAST = b'10.9.9.9 - - [01/Feb/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "a"'


@pytest.fixture(scope="module")
def access(broker: BrokerProcess, admin: Admin, producer: Producer) -> str:
    """A topic with the lines, some that are none, and the last one."""
    admin.create_topic("access", partitions=3)
    for number, line in enumerate([*LINES, *HOSTILE, LAST]):
        producer.send("access", line, partition=number % 3)
    producer.flush()
    return "access"


def by_window(minutes: int) -> dict[datetime, list[Hit]]:
    found = defaultdict(list)
    for hit in HITS:
        seconds = int(hit.time.timestamp()) // (60 * minutes) * 60 * minutes
        found[datetime.fromtimestamp(seconds, UTC)].append(hit)
    return found


def test_statistics_are_those_of_the_lines(
    spark: "SparkSession", broker: BrokerProcess, access: str, tmp_path: Path
) -> None:
    from qbus.clients.pipelines.line_jobs import run_stats

    statistics = [
        {
            "name": "status", "window": "30 minutes", "by": ["status"], "sum": ["bytes"],
            "percentiles_of": ["bytes"], "percentiles": [0.5], "exact_percentiles": True,
        },
        {"name": "paths", "window": "1 hour", "by": ["path"], "top": 5},
    ]  # fmt: skip
    stated = told(broker, access, statistic=statistics, checkpoint=str(tmp_path / "checkpoint"))
    stated["output"] = {"path": str(tmp_path / "results")}
    config = STATS.read(stated)
    _, seen = finished(run_stats, spark, config)

    expected = []
    for start, window in by_window(30).items():
        for status in {hit.status for hit in window}:
            sizes = sorted(hit.bytes for hit in window if hit.status == status)
            middle = (sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2]) / 2
            expected.append((start, status, len(sizes), sum(sizes), middle))
    rows = spark.read.parquet(str(tmp_path / "results" / "status")).collect()
    found = [
        (
            row.window_start.replace(tzinfo=None),
            row.status,
            row["count"],
            row.bytes_sum,
            row.bytes_p50,
        )
        for row in rows
    ]
    assert sorted(found) == sorted((naive(start), *rest) for start, *rest in expected)

    ranked = []
    for start, window in by_window(60).items():
        counts = Counter(hit.path for hit in window)
        best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]
        ranked += [(naive(start), rank, *item) for rank, item in enumerate(best, 1)]
    rows = spark.read.parquet(str(tmp_path / "results" / "paths")).collect()
    got = [(row.window_start, row["rank"], row.path, row["count"]) for row in rows]
    assert sorted(got) == sorted(ranked)
    assert all(tally.malformed == len(HOSTILE) for tally in seen.tallies)
    assert all(tally.late == 0 for tally in seen.tallies)


def naive(time: datetime) -> datetime:
    """The time as Spark returns it: without a zone, in the session's zone, UTC."""
    return datetime.fromtimestamp(time.timestamp())  # noqa: DTZ006 - so does Spark


def slides(window: int, slide: int) -> Iterator[tuple[datetime, dict[str, list[Hit]]]]:
    """Sliding windows, in minutes, with the lines of each client."""
    first = int(min(hit.time for hit in HITS).timestamp())
    at = datetime.fromtimestamp(first - first % (60 * slide), UTC)
    while at <= max(hit.time for hit in HITS) + timedelta(minutes=window):
        clients = defaultdict(list)
        for hit in HITS:
            if at - timedelta(minutes=window) <= hit.time < at:
                clients[hit.address].append(hit)
        yield at - timedelta(minutes=window), clients
        at += timedelta(minutes=slide)


def test_alerts_are_those_of_the_lines(
    spark: "SparkSession", broker: BrokerProcess, access: str, admin: Admin
) -> None:
    from qbus.clients.pipelines.line_jobs import run_abuse

    stated = told(broker, access, window="10 minutes", slide="5 minutes", repeat=True)
    stated["limits"] = {"bytes": 900_000}
    stated["baseline"] = {"peers_factor": 1.5, "peers_percentile": 0.5, "requests": 20, "bytes": 0}
    stated["exempt"] = ["10.0.0.1", "10.9.*"]
    config = ABUSE.read(stated)
    _, seen = finished(run_abuse, spark, config, Mode.BATCH)

    expected = []
    for start, clients in slides(10, 5):
        clients.pop("10.0.0.1", None)
        sizes = {client: sum(hit.bytes for hit in found) for client, found in clients.items()}
        counts = {client: len(found) for client, found in clients.items()}
        for client in clients:
            reasons = []
            if sizes[client] > 900_000:
                reasons.append("bytes over limit")
            if counts[client] >= 20 and counts[client] > 1.5 * lower_median(counts.values()):
                reasons.append("requests over peers")
            if sizes[client] > 1.5 * lower_median(sizes.values()):
                reasons.append("bytes over peers")
            if reasons:
                expected.append((written(start), client, counts[client], sizes[client], reasons))
    found = [
        (row["window_start"], row["client"], row["requests"], row["bytes"], row["reasons"])
        for row in seen.results
    ]
    assert len(expected) > 10
    assert sorted(found) == sorted(expected)


def lower_median(values: Any) -> float:
    """The value whose rank is half of how many there are, rounded up."""
    ordered = sorted(values)
    return float(ordered[math.ceil(len(ordered) / 2) - 1])


def test_an_archive_has_each_record_once_and_the_audit_says_so(
    spark: "SparkSession", broker: BrokerProcess, access: str, tmp_path: Path
) -> None:
    from qbus.clients.pipelines.audit.job import run_audit
    from qbus.clients.pipelines.audit.report import Verdict

    path = str(tmp_path / "my archive")
    stated = told(broker, access, path=path, compaction={"files": 2})
    stated["source"]["batch_records"] = 1500
    archive(spark, stated)
    values = [bytes(row.value) for row in spark.read.parquet(path).select("value").collect()]
    assert Counter(values) == Counter([*LINES, *HOSTILE, LAST])

    archive(spark, {**stated, "checkpoint": str(tmp_path / "another checkpoint")})
    assert spark.read.parquet(path).count() == len(values)

    audit = AUDIT.read(told(broker, access, copy={"archive": path}))
    report, _ = finished(run_audit, spark, audit, Mode.BATCH)
    assert report.verdict is Verdict.EQUAL
    assert report.document()["records"] == len(values)
