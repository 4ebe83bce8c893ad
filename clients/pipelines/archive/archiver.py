"""Adds micro-batches to an archive, each record once.

A repeated batch reads from the log which offsets are archived already, and adds the others. This
holds across processes and checkpoints.
"""

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import DataFrame

from .layout import laid_out, without
from .log import ArchiveError, ArchiveLog, Conflict
from .snapshot import Coverage, common
from .staging import StagedFiles, Staging

TopicIds = Callable[[Iterable[str]], Mapping[str, str]]
"""Looks up the ids of topics."""


class Archiver:
    """Adds records to the archive of ``log``."""

    def __init__(
        self, log: ArchiveLog, staging: Staging, topic_ids: TopicIds, time_zone: str
    ) -> None:
        self._log = log
        self._staging = staging
        self._look_up = topic_ids
        self._time_zone = time_zone

    def add(self, records: DataFrame) -> int:
        """Archive the records that are not archived yet; return their number.

        Raises :class:`ArchiveError`.
        """
        rows = laid_out(records, self._time_zone)
        staged = self._staging.write(rows)
        extent = staged.hulls()
        topic_ids = self._checked_ids({topic for topic, _ in extent})
        left_out: Coverage = {}
        while staged.files:
            known = self._known(extent)
            if known != left_out:
                self._staging.discard(staged)
                staged, left_out = self._staging.write(without(rows, known)), known
            elif self._commit(staged, extent, known, topic_ids):
                break
        else:
            self._staging.discard(staged)
        return sum(found[2] for extents in staged.extents.values() for found in extents.values())

    def _commit(
        self, staged: StagedFiles, extent: Coverage, known: Coverage, topic_ids: Mapping[str, str]
    ) -> bool:
        """Commit the files; False if others have archived some of their offsets meanwhile.

        extent: all offsets that the files account for, with those already ``known``.
        """
        files = self._staging.move(
            staged, topic_ids, lambda topic, partition: extent[topic, partition]
        )
        while True:
            try:
                self._log.add(files)
            except Conflict:
                self._log.reload()
                if self._known(extent) != known:
                    return False
            else:
                return True

    def _known(self, hulls: Coverage) -> Coverage:
        """The offsets among these that are archived."""
        covered = self._log.snapshot.coverage
        found = {key: common(hull, covered.get(key, ())) for key, hull in hulls.items()}
        return {key: intervals for key, intervals in found.items() if intervals}

    def _checked_ids(self, topics: set[str]) -> Mapping[str, str]:
        """The ids of topics, read for each batch: a topic may be deleted while a query runs."""
        if not topics:
            return {}
        found = self._look_up(topics)
        archived = self._log.snapshot.topic_ids()
        for topic in sorted(topics & archived.keys()):
            if archived[topic] != found[topic]:
                raise ArchiveError(
                    f"topic {topic} was deleted and created again since it was archived here:"
                    " its offsets start again. Archive it to another path"
                )
        return found
