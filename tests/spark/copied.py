"""The content of copies: the records of a topic, or the rows of committed Parquet files."""

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from qbus import LATEST, Admin, TopicPartition


def count_records(admin: Admin, topic: str) -> int:
    """The number of records, from the ends of partitions that start at 0 and have no gaps."""
    partitions = admin.describe_topic(topic).partitions
    places = dict.fromkeys((TopicPartition(topic, one.index) for one in partitions), LATEST)
    return sum(found.offset for found in admin.list_offsets(places).values())


class Files:
    """The files that the log of Spark's file sink names; failed tasks may leave others."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "_spark_metadata"
        self._rows: dict[Path, int] = {}  # of files that were looked at: they never change

    def count(self) -> int:
        """The number of rows."""
        for path in self._committed():
            if path not in self._rows:
                self._rows[path] = int(pq.read_metadata(path).num_rows)
        return sum(self._rows.values())

    def values(self) -> list[int]:
        """The values, as numbers."""
        tables = [pq.read_table(path) for path in sorted(self._committed())]
        return [int(value) for table in tables for value in table["value"].to_pylist()]

    def _committed(self) -> set[Path]:
        paths = set()
        for batch in self._log.glob("*"):
            if batch.name.removesuffix(".compact").isdigit():
                for line in _lines(batch):
                    paths.add(Path(unquote(urlsplit(json.loads(line)["path"]).path)))
        return paths


def _lines(batch: Path) -> list[str]:
    """Of the log of a batch, without the version."""
    try:
        return batch.read_text().splitlines()[1:]
    except FileNotFoundError:  # a newer one, which has all of it, took its place
        return []
