"""What is known of a query's micro-batches: which of them are decided, and published. Pure.

The log decides, so that two drivers of one query can do no harm. A driver appends the manifest of
the next batch, naming the batch before, and then reads what was appended: **the first manifest that
follows the last one binds**, whoever wrote it, and every driver publishes that one. All others are
passed over, with the rows they name.

The offset that the query's consumer group has committed is only a bookmark: where to begin to read,
and whether that batch is published. A bookmark that an old driver puts back costs reading, and a
look for what is published already, no more.
"""

import json
from dataclasses import dataclass, replace

from qbus.errors import QbusError

from .manifest import NO_BATCH, Manifest


class StagingLost(QbusError):  # noqa: N818 - what happened
    """The staging topic does not hold any more what a query needs to go on."""


@dataclass(frozen=True)
class Bookmark:
    """Where a query's last manifest begins, and whether all of it is published.

    Without a batch (NO_BATCH): where the first one will be found.
    """

    offset: int
    batch: int = NO_BATCH
    attempt: str = ""
    is_published: bool = True

    @property
    def metadata(self) -> str:
        """What is committed beside the offset."""
        fields = {
            "batch": self.batch,
            "attempt": self.attempt,
            "state": "published" if self.is_published else "bound",
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def of(cls, offset: int, metadata: str) -> "Bookmark":
        """What was committed; raises :class:`StagingLost` for what no sink commits."""
        try:
            found = json.loads(metadata)
            is_published = found["state"] == "published"
            return cls(offset, int(found["batch"]), str(found["attempt"]), is_published)
        except (ValueError, TypeError, KeyError) as error:
            raise StagingLost(
                f"the query's group has committed {metadata!r} at offset {offset}, which no sink"
                " does: was the group reset? Delete it, and nobody knows what was published"
            ) from error


class History:
    """The query's last decided batch, as far as the log was read.

    ``manifest`` is None as long as there is none, or it is too old to be still there.
    """

    def __init__(self, bookmark: Bookmark, log_start: int, log_end: int) -> None:
        """``log_start``, ``log_end``: what can be read. Raises :class:`StagingLost`.

        The log of a staging topic that was created anew ends before the bookmark: what is published
        needs none of the old one.
        """
        self.bookmark = bookmark
        self.manifest: Manifest | None = None
        if bookmark.offset < log_start and not bookmark.is_published:
            raise self._lost(f"has aged out of the staging topic, which begins at {log_start}")
        if bookmark.offset > log_end:
            if not bookmark.is_published:
                raise self._lost("went with the staging topic, which was cut or created anew")
            self.bookmark = replace(bookmark, offset=log_end)

    @property
    def batch(self) -> int:
        """The last decided batch, or NO_BATCH."""
        return self.bookmark.batch

    @property
    def is_published(self) -> bool:
        """Whether all of it is known to be in its targets."""
        return self.bookmark.is_published

    def take(self, manifest: Manifest, offset: int) -> None:
        """The next manifest in the log, beginning at ``offset``: it binds, or means nothing."""
        if manifest.attempt == self.bookmark.attempt:
            self.manifest = manifest
        elif manifest.previous == self.batch and manifest.batch > self.batch:
            self.manifest = manifest
            self.bookmark = Bookmark(offset, manifest.batch, manifest.attempt, is_published=False)

    def check(self) -> None:
        """Raise :class:`StagingLost` where all was read, and what to publish was not found."""
        if not self.is_published and self.manifest is None:
            raise self._lost("is not in the staging topic, which was created anew")

    def published(self) -> None:
        """All of the last batch is in its targets."""
        now = self.bookmark
        self.bookmark = Bookmark(now.offset, now.batch, now.attempt)

    def _lost(self, why: str) -> StagingLost:
        mark = self.bookmark
        return StagingLost(
            f"batch {mark.batch} was being published when the query stopped, and what is missing of"
            f" it (offset {mark.offset}) {why}. To go on without it, commit batch {mark.batch} as"
            " published in the query's group; and let retention.ms exceed what a query may stop"
        )
