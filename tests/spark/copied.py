"""What a copy consists of: of a topic its records, of Parquet the rows of committed files."""

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from qbus import LATEST, Admin, TopicPartition


def count_records(admin: Admin, topic: str) -> int:
    """How many there are, by the ends of the partitions, which start at 0 and have no gaps."""
    partitions = admin.describe_topic(topic).partitions
    places = dict.fromkeys((TopicPartition(topic, one.index) for one in partitions), LATEST)
    return sum(found.offset for found in admin.list_offsets(places).values())


def committed_files(directory: Path) -> list[Path]:
    """What Spark's file sink has committed, by its log: other files are what tasks left behind."""
    paths = set()
    for log in (directory / "_spark_metadata").glob("*"):
        if log.name.removesuffix(".compact").isdigit():
            for line in log.read_text().splitlines()[1:]:  # after the version
                paths.add(Path(unquote(urlsplit(json.loads(line)["path"]).path)))
    return sorted(paths)


def count_rows(directory: Path) -> int:
    """How many rows the committed files have."""
    return sum(int(pq.read_metadata(path).num_rows) for path in committed_files(directory))


def read_values(directory: Path) -> list[int]:
    """The values of the committed files, as numbers."""
    files = committed_files(directory)
    return [int(value) for path in files for value in pq.read_table(path)["value"].to_pylist()]
