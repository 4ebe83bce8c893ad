"""Merges small files of an hour into one large file, in one commit of the log.

Readers see either the old files or the new one. A crash leaves files that the log does not name,
which are deleted later. Replaced files stay for a while, for queries that have started before.
"""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pyspark.sql import SparkSession

from ..config import Compaction
from .layout import ORDER, data_schema
from .log import ArchiveError, ArchiveLog, Conflict
from .snapshot import ArchivedFile, Snapshot
from .staging import DIRECTORY, StagedFiles, Staging, merged_covers
from .storage import Found, Storage

_DAY_MS = 86_400_000

_COMMIT_S = 20.0
"""About how long merged files may wait for their commit. Files without a commit are deleted after
``keep_replaced``, which is a minute or more."""


def groups(snapshot: Snapshot, config: Compaction, at_least: int) -> list[list[ArchivedFile]]:
    """Groups of small files of one hour to merge; an hour needs ``at_least`` small files."""
    hours: dict[str, list[ArchivedFile]] = {}
    for file in snapshot.files.values():
        if file.size * 2 < config.target_bytes:
            hours.setdefault(file.directory, []).append(file)
    found = []
    for _, files in sorted(hours.items()):
        if len(files) >= at_least:
            found += [group for group in _filled(files, config.target_bytes) if len(group) > 1]
    return found


def _filled(files: Iterable[ArchivedFile], target: int) -> list[list[ArchivedFile]]:
    """Group files, oldest first, up to the target size."""
    result: list[list[ArchivedFile]] = []
    room = 0
    for file in sorted(files, key=lambda file: (file.modified, file.path)):
        if file.size > room:
            result.append([])
            room = target
        result[-1].append(file)
        room -= file.size
    return result


class Compactor:
    """Merges small files, and deletes files that are no longer needed."""

    def __init__(
        self,
        spark: SparkSession,
        storage: Storage,
        log: ArchiveLog,
        staging: Staging,
        config: Compaction,
    ) -> None:
        self._spark = spark
        self._storage = storage
        self._log = log
        self._staging = staging
        self._config = config
        self._cleaned = 0.0

    def compact(self, *, at_least: int | None = None) -> int:
        """Merge small files; return how many files were replaced.

        at_least: the least number of small files of an hour; by default as configured.
        """
        replaced = 0
        merged: list[_Merged] = []
        began = time.monotonic()
        for group in groups(self._log.snapshot, self._config, at_least or self._config.files):
            if self._log.snapshot.files.keys() >= {file.path for file in group}:
                merged.append(self._merge(group))
            if time.monotonic() - began > _COMMIT_S:
                replaced += self._commit(merged)
                merged, began = [], time.monotonic()
        return replaced + self._commit(merged)

    def clean(self, *, now: float | None = None) -> None:
        """Delete files that no snapshot has had for ``keep_replaced``; runs at most that often.

        now: in seconds since the epoch; by default the current time.
        """
        now = time.time() if now is None else now
        if now - self._cleaned < self._config.keep_replaced / 1000:
            return
        self._cleaned = now
        before = int(now * 1000) - self._config.keep_replaced
        for staging in list(self._storage.directories(f"{self._storage.root}/{DIRECTORY}")):
            if staging.modified < min(before, int(now * 1000) - _DAY_MS):
                self._storage.delete(staging.path)
        old = [file.path for file in self._data_files() if file.modified < before]
        # The log is read after the files were listed: files added in between are new.
        needed = self._log.paths_since(before)
        for path in old:
            if path not in needed:
                self._storage.delete(path)
        self._log.forget(before)

    def _data_files(self) -> Iterator[Found]:
        for directory in list(self._storage.directories(self._storage.root)):
            if directory.path.rpartition("/")[2].startswith("topic="):
                yield from self._storage.list(directory.path, recursive=True)

    def _merge(self, group: list[ArchivedFile]) -> "_Merged":
        """Merge files into one that is not part of the archive yet."""
        hour = group[0].directory.removeprefix(f"{self._storage.root}/")
        rows = self._spark.read.schema(data_schema()).parquet(*(file.path for file in group))
        staged = self._staging.write_hour(rows.coalesce(1).sortWithinPartitions(*ORDER), hour)
        written = sum(
            extent[2] for extents in staged.extents.values() for extent in extents.values()
        )
        expected = sum(count for file in group for count in file.records.values())
        if written != expected:
            self._staging.discard(staged)
            raise ArchiveError(
                f"{hour} has {written} records in {len(group)} files, and {expected} were"
                " archived; its files were left as they are. Restore them, or audit the archive"
            )
        covers = merged_covers(group)
        ids = {file.topic: file.topic_id for file in group}
        added = self._staging.move(staged, ids, lambda _, partition: covers[partition])
        return _Merged([file.path for file in group], staged, added)

    def _commit(self, merged: "list[_Merged]") -> int:
        """Commit merged files; return how many were replaced here, not by others."""
        while merged:
            try:
                self._log.replace(
                    [path for merge in merged for path in merge.replaced],
                    [file for merge in merged for file in merge.added],
                )
            except Conflict:
                there = self._log.reload().files.keys()
                late = [merge for merge in merged if not there >= set(merge.replaced)]
                for merge in late:
                    self._staging.discard(merge.staged)
                merged = [merge for merge in merged if merge not in late]
            else:
                break
        return sum(len(merge.replaced) for merge in merged)


class _Merged(NamedTuple):
    """Files to be replaced, and the files that replace them."""

    replaced: list[str]
    staged: StagedFiles
    added: list[ArchivedFile]
