"""Kafka's DumpLogSegments reads the files of a stopped broker and finds nothing wrong with them."""

import re
from pathlib import Path

import pytest

from perf.peers import java, kafka
from tests.support.tools import skip_because_of

from . import targets
from .clients.confluent import Confluent
from .records import numbered

pytestmark = pytest.mark.compat

TOPIC = "dumped"
SEGMENT_BYTES = 1_048_576  # the least that Kafka takes

# The tool wonders at the first offset of each segment that does not begin at 0.
_FIRST_OFFSET = re.compile(r"Non-consecutive offsets in \S+\n  -1 is followed by \d+\n")


@pytest.fixture(scope="module")
def partition_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a partition with several segments, indexes and a snapshot."""
    skip_because_of(kafka.missing())
    directory = tmp_path_factory.mktemp("dumped")
    with targets.server(request.config.getoption("--target"), directory) as server:
        client = Confluent(server.bootstrap)
        settings = {"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "1000"}
        client.create_topic(TOPIC, config=settings)
        for compression in client.compressions:
            client.produce(
                TOPIC, numbered(600, size=2_000), compression=compression, idempotent=True
            )
        client.close()
    return targets.log_dir(server) / f"{TOPIC}-0"


def dump(files: list[Path], *options: str) -> str:
    """Run the tool on files; it must find no mismatch."""
    assert files
    names = ",".join(str(file) for file in sorted(files))
    result = java.run(
        "org.apache.kafka.tools.DumpLogSegments",
        *(*options, "--files", names),
        options=java.SHORT_RUN_OPTIONS,
    )
    assert result.returncode == 0, result.stderr.decode()
    complaints = _FIRST_OFFSET.sub("", result.stderr.decode())
    assert not complaints, complaints
    return result.stdout.decode()


def test_segments(partition_dir: Path) -> None:
    segments = list(partition_dir.glob("*.log"))
    assert len(segments) > 1
    found = dump(segments, "--deep-iteration", "--skip-record-metadata")
    assert sum(int(count) for count in re.findall(r" count: (\d+)", found)) == 3_000
    codecs = set(re.findall(r"compresscodec: (\w+)", found))
    assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert set(re.findall(r"isvalid: (\w+)", found)) == {"true"}


def test_records(partition_dir: Path) -> None:
    found = dump(list(partition_dir.glob("*.log")), "--print-data-log")
    payloads = re.findall(r"offset: (\d+) .* payload: (\d+)", found)
    assert [int(offset) for offset, _ in payloads] == list(range(3_000))
    assert [int(payload) for _, payload in payloads] == list(range(600)) * 5


def test_offset_indexes(partition_dir: Path) -> None:
    found = dump(list(partition_dir.glob("*.index")))
    assert len(re.findall(r"offset: \d+ position: \d+", found)) >= 5


def test_time_indexes(partition_dir: Path) -> None:
    found = dump(list(partition_dir.glob("*.timeindex")))
    assert len(re.findall(r"timestamp: \d+ offset: \d+", found)) >= 2


def test_producer_snapshots(partition_dir: Path) -> None:
    last = max(partition_dir.glob("*.snapshot"))
    assert last.stem == f"{3_000:020d}"
    found = dump([last])
    producers = re.findall(r"producerId: (\d+) producerEpoch: 0 coordinatorEpoch: -1", found)
    assert len(set(producers)) == 5
    assert "lastOffset: 2999" in found
