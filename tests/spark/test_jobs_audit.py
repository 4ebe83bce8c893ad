"""The audit tells the truth: of archives and of copies that are not what they should be."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

from qbus import Admin, Producer, TopicPartition
from qbus.clients.pipelines.config import AUDIT
from qbus.clients.pipelines.run import Mode
from qbus.errors import ConfigError
from tests.support.broker_process import BrokerProcess

from . import jobs
from .jobs import finished, told

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

Document = dict[str, Any]
#: In Berlin this and the next hour are both called two o'clock.
BEGIN = datetime(2026, 10, 25, tzinfo=UTC)
EACH = timedelta(minutes=10)


def put(producer: Producer, topic: str, numbers: range, **changed: str) -> None:
    """A record each ten minutes in partition 0, with headers; ``_5`` is another value for 5."""
    for number in numbers:
        value = changed.get(f"_{number}", f"{number}").encode()
        at = int((BEGIN + number * EACH).timestamp() * 1000)
        producer.send(topic, value, b"k", [("h", b"v")], partition=0, timestamp=at)
    producer.flush()


@pytest.fixture
def audit(spark: "SparkSession", broker: BrokerProcess) -> Callable[..., Document]:
    """Compare a topic with a copy."""

    def run(topic: str, **stated: Any) -> Document:
        from qbus.clients.pipelines.audit.job import run_audit

        config = AUDIT.read(told(broker, topic, **stated))
        report, _ = finished(run_audit, spark, config, Mode.BATCH)
        document: Document = json.loads(json.dumps(report.document()))
        return document

    return run


@pytest.fixture
def archive(
    spark: "SparkSession", broker: BrokerProcess, topic: str, producer: Producer, tmp_path: Path
) -> Path:
    """An archive of a topic with ten records over two hours."""
    put(producer, topic, range(10))
    jobs.archive(spark, told(broker, topic, path=str(tmp_path / "archive")))
    return tmp_path / "archive"


def tamper(archive: Path, hour: int, change: "Callable[[pa.Table], pa.Table]") -> None:
    """Change what is in the file of an hour, without a trace in the log but the file's size."""
    import pyarrow.parquet as pq

    (log,) = (path for path in (archive / "_spark_metadata").iterdir() if path.name == "0")
    version, *lines = log.read_text().splitlines()
    for at, line in enumerate(lines):
        status = json.loads(line)
        path = Path(unquote(urlsplit(status["path"]).path))
        if f"/hour={hour:02}/" in status["path"]:
            pq.write_table(change(_read(path)), path)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            lines[at] = json.dumps({**status, "size": path.stat().st_size})
    log.write_text("\n".join([version, *lines]))


def _read(path: Path) -> "pa.Table":
    """With timestamps as Spark takes them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path, partitioning=None)
    at = table.column_names.index("timestamp")
    times = table["timestamp"].cast(pa.timestamp("us", tz="UTC"))
    return table.set_column(at, "timestamp", times)


def without(*rows: int) -> "Callable[[pa.Table], pa.Table]":
    return lambda table: table.take([row for row in range(len(table)) if row not in rows])


def found(document: Document) -> tuple[int, ...]:
    return tuple(document[kind] for kind in ("missing", "extra", "duplicate", "changed"))


def ranges(document: Document) -> list[tuple[int, int, str]]:
    return [(row["begin"], row["end"], row["what"]) for row in document["differences"]]


@pytest.mark.usefixtures("berlin")
def test_an_audit_finds_missing_repeated_and_changed_records(
    audit: Callable[..., Document], archive: Path, topic: str
) -> None:
    import pyarrow as pa

    def other(table: pa.Table) -> pa.Table:  # 6 is there three times; of 8 the value is another
        value = table["value"].to_pylist()
        value[2] = b"other"
        at = table.column_names.index("value")
        changed = table.set_column(at, "value", pa.array(value, table["value"].type))
        return pa.concat_tables([changed, changed.slice(0, 1), changed.slice(0, 1)])

    assert audit(topic, copy={"archive": str(archive)})["equal"]
    tamper(archive, 0, without(1, 2, 4))
    tamper(archive, 1, other)
    document = audit(topic, copy={"archive": str(archive)})
    assert not document["equal"]
    assert (document["records"], document["records_right"]) == (10, 9)
    assert found(document) == (3, 0, 2, 1)
    assert ranges(document) == [
        (1, 2, "missing"), (4, 4, "missing"), (6, 6, "duplicate"), (8, 8, "changed"),
    ]  # fmt: skip
    assert document["gaps_right"] == 3
    assert [row["start"] for row in document["intervals"]] == [
        "2026-10-25T00:00:00.000Z", "2026-10-25T01:00:00.000Z",
    ]  # fmt: skip
    assert [row["missing"] for row in document["intervals"]] == [3, 0]

    # Offsets alone: what is in a record does not matter.
    assert found(audit(topic, copy={"archive": str(archive)}, content=False)) == (3, 0, 2, 0)
    # Of the second hour alone: what is not there of the first is no matter either.
    second = {"since": "2026-10-25T01:00:00Z"}
    assert found(audit(topic, copy={"archive": str(archive)}, **second)) == (0, 0, 2, 1)


def test_a_record_with_another_time_is_a_changed_one_wherever_it_went(
    audit: Callable[..., Document], archive: Path, topic: str
) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    def later(table: pa.Table) -> pa.Table:
        at = table.column_names.index("timestamp")
        moved = pc.add(table["timestamp"], pa.scalar(timedelta(hours=1)))
        return table.set_column(at, "timestamp", moved.cast(table["timestamp"].type))

    tamper(archive, 0, later)
    document = audit(topic, copy={"archive": str(archive)})
    assert found(document) == (0, 0, 0, 6)
    assert ranges(document) == [(0, 5, "changed")]


def test_an_audit_names_a_path_without_an_archive_of_the_topic(
    audit: Callable[..., Document], archive: Path, topic: str, admin: Admin, producer: Producer,
    tmp_path: Path,
) -> None:  # fmt: skip
    from qbus.clients.pipelines.audit.sides import NothingToAudit

    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingToAudit, match=r"there is no archive at .*empty"):
        audit(topic, copy={"archive": str(tmp_path / "empty")})
    with pytest.raises(NothingToAudit, match="there is no topic nowhere at"):
        audit("nowhere", copy={"archive": str(archive)})
    admin.delete_topic(topic)
    admin.create_topic(topic, partitions=2)
    with pytest.raises(NothingToAudit, match=f"topic {topic} was deleted and created again"):
        audit(topic, copy={"archive": str(archive)})


def test_a_copy_with_gaps_another_start_and_records_of_its_own(
    audit: Callable[..., Document], broker: BrokerProcess, topic: str, admin: Admin,
    producer: Producer,
) -> None:  # fmt: skip
    copied = f"{topic}-copy"
    admin.create_topic(copied, partitions=2)
    put(producer, topic, range(10))
    put(producer, copied, range(9), _4="other")
    producer.send(copied, b"own", partition=1)
    producer.flush()
    admin.delete_records({TopicPartition(copied, 0): 3})
    copy = {"bootstrap": f"localhost:{broker.port}", "topics": {topic: copied}}
    document = audit(topic, copy=copy)
    assert found(document) == (1, 1, 0, 1)
    assert ranges(document) == [(4, 4, "changed"), (9, 9, "missing"), (0, 0, "extra")]
    assert (document["skipped_left"], document["skipped_right"]) == (3, 0)
    first = document["partitions"][0]
    assert (first["begin"], first["end"], first["skipped_left"]) == (3, 10, 3)
    with pytest.raises(ConfigError, match=f"{topic} is its own copy"):
        audit(topic, copy={"bootstrap": broker.bootstrap})


def test_empty_topics_were_not_compared(
    audit: Callable[..., Document], broker: BrokerProcess, topic: str, admin: Admin
) -> None:
    admin.create_topic(f"{topic}-copy", partitions=2)
    copy = {"bootstrap": broker.bootstrap, "topics": {topic: f"{topic}-copy"}}
    document = audit(topic, copy=copy)
    assert (document["equal"], document["verdict"]) == (False, "nothing_compared")
    assert (document["records"], document["intervals"]) == (0, [])
    assert document["uncompared"] == [topic]
