"""Staged files: written to a directory of their own, inspected, and moved into the archive."""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from .layout import DIRECTORIES, archive_schema, data_schema
from .snapshot import ArchivedFile, Coverage, Intervals, union
from .storage import Found, Storage

DIRECTORY = "_staging"


@dataclass
class StagedFiles:
    """Parquet files in a directory of their own.

    extents: the first offset, the last offset and the number of records; by the file's path within
    the archive, then by partition.
    """

    directory: str
    files: Mapping[str, Found]
    extents: Mapping[str, Mapping[int, tuple[int, int, int]]]
    moved: list[str] = field(default_factory=list)

    def hulls(self) -> Coverage:
        """The offsets of each topic and partition, from the first to the last of all files."""
        found: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for path, extents in self.extents.items():
            for partition, (first, last, _) in extents.items():
                found.setdefault((topic_of(path), partition), []).append((first, last + 1))
        return {
            key: ((min(begin for begin, _ in parts), max(end for _, end in parts)),)
            for key, parts in found.items()
        }


def topic_of(path: str) -> str:
    """The topic in the name of the first directory."""
    return path.partition("/")[0].partition("=")[2]


class Staging:
    """Writes and moves staged files; ``compression`` is a codec of Parquet."""

    def __init__(self, spark: SparkSession, storage: Storage, compression: str) -> None:
        self._spark = spark
        self._storage = storage
        self._compression = compression

    def write(self, rows: DataFrame) -> StagedFiles:
        """Write records by topic, date and hour."""
        directory = self._new()
        writer = rows.write.option("compression", self._compression)
        writer.partitionBy(*DIRECTORIES).parquet(directory)
        return self._inspect(directory, "")

    def write_hour(self, rows: DataFrame, hour: str) -> StagedFiles:
        """Write records of one topic and hour, whose path within the archive is ``hour``."""
        directory = self._new()
        target = f"{directory}/{hour}"
        rows.write.option("compression", self._compression).parquet(target)
        return self._inspect(directory, hour)

    def move(
        self,
        staged: StagedFiles,
        topic_ids: Mapping[str, str],
        covers: Callable[[str, int], Intervals],
    ) -> list[ArchivedFile]:
        """Move the files into the archive; return them for a commit."""
        now = int(time.time() * 1000)
        added = []
        for path, found in staged.files.items():
            target = f"{self._storage.root}/{path}"
            self._storage.move(found.path, target, at=now)
            staged.moved.append(target)
            extents = staged.extents[path]
            topic = topic_of(path)
            added.append(
                ArchivedFile(
                    path=target,
                    size=found.size,
                    modified=now,
                    topic=topic,
                    topic_id=topic_ids[topic],
                    records={partition: extent[2] for partition, extent in extents.items()},
                    covers={partition: covers(topic, partition) for partition in extents},
                )
            )
        self._storage.delete(staged.directory)
        return added

    def discard(self, staged: StagedFiles) -> None:
        """Delete files that do not become part of the archive."""
        for path in (*staged.moved, staged.directory):
            self._storage.delete(path)

    def _new(self) -> str:
        return f"{self._storage.root}/{DIRECTORY}/{uuid.uuid4()}"

    def _inspect(self, directory: str, hour: str) -> StagedFiles:
        listed = self._storage.list(directory, recursive=True)
        files = {
            found.path.removeprefix(f"{directory}/"): found
            for found in listed
            if found.path.endswith(".parquet")
        }
        extents: dict[str, dict[int, tuple[int, int, int]]] = {}
        if files:
            schema = data_schema() if hour else archive_schema()
            rows = self._spark.read.schema(schema).parquet(f"{directory}/{hour}".rstrip("/"))
            for row in _extents(rows).collect():
                path = row["path"].rpartition(f"/{DIRECTORY}/")[2].partition("/")[2]
                extents.setdefault(path, {})[row["partition"]] = tuple(row)[2:]
        if unknown := sorted(extents.keys() - files.keys()):
            raise OSError(f"{directory} has records in {unknown[0]}, but no such file")
        whole = {path: found for path, found in files.items() if path in extents}
        return StagedFiles(directory, whole, extents)


def _extents(rows: DataFrame) -> DataFrame:
    return rows.groupBy(sql.col("_metadata.file_path").alias("path"), "partition").agg(
        sql.min("offset"), sql.max("offset"), sql.count("offset")
    )


def merged_covers(files: list[ArchivedFile]) -> dict[int, Intervals]:
    """The offsets that files account for together."""
    partitions = {partition for file in files for partition in file.covers}
    return {
        partition: union(*(file.covers.get(partition, ()) for file in files))
        for partition in partitions
    }


__all__ = ["DIRECTORY", "StagedFiles", "Staging", "merged_covers", "topic_of"]
