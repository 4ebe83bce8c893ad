"""Which of a query's micro-batches are decided, and which are published. Pure.

The log decides, so that two drivers of one query do no harm. A driver appends the manifest of the
next batch, which names the batch before, and reads what was appended: **the first manifest that
follows the last one binds**, whoever wrote it. Every driver publishes that one, and ignores all
others and the rows they name.

The offset that the query's consumer group has committed is only a bookmark: where to start reading,
and whether that batch is published. If an old driver moves it back, the next one reads more and
searches the targets for published batches; nothing else happens.
"""

import json
from dataclasses import dataclass, replace

from qbus.errors import QbusError

from .manifest import NO_BATCH, Manifest


class StagingLost(QbusError):  # noqa: N818 - what happened
    """The staging topic has lost batches or manifests that a query needs to continue."""


@dataclass(frozen=True)
class Bookmark:
    """Where a query's last manifest begins, and whether it is fully published.

    Without a batch (NO_BATCH): the offset from which on the first manifest will be.
    """

    offset: int
    batch: int = NO_BATCH
    attempt: str = ""
    is_published: bool = True

    @property
    def metadata(self) -> str:
        """The metadata of the committed offset."""
        fields = {
            "batch": self.batch,
            "attempt": self.attempt,
            "state": "published" if self.is_published else "bound",
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def of(cls, offset: int, metadata: str) -> "Bookmark":
        """Parse a committed offset; raises :class:`StagingLost` if no sink has committed it."""
        try:
            found = json.loads(metadata)
            is_published = found["state"] == "published"
            return cls(offset, int(found["batch"]), str(found["attempt"]), is_published)
        except (ValueError, TypeError, KeyError) as error:
            raise StagingLost(
                f"the query's group has committed {metadata!r} at offset {offset}, which is not"
                " a bookmark of a sink: somebody has reset the group. Deleting the group lets the"
                " query continue, but may publish the last batch twice"
            ) from error


class History:
    """The query's last decided batch, as far as the log was read.

    ``manifest`` is None if there is none yet, or it has aged out.
    """

    def __init__(self, bookmark: Bookmark, log_start: int, log_end: int) -> None:
        """``log_start``, ``log_end``: the bounds of the log. Raises :class:`StagingLost`.

        A log that ends before the bookmark is that of a staging topic that was created again. It
        suffices if the last batch is published.
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
        """Whether it is known to be published completely."""
        return self.bookmark.is_published

    def add(self, manifest: Manifest, offset: int) -> None:
        """Add the next manifest of the log, which begins at ``offset``: it binds, or is ignored."""
        if manifest.attempt == self.bookmark.attempt:
            self.manifest = manifest
        elif manifest.previous == self.batch and manifest.batch > self.batch:
            self.manifest = manifest
            self.bookmark = Bookmark(offset, manifest.batch, manifest.attempt, is_published=False)

    def check(self) -> None:
        """Raise :class:`StagingLost` if the manifest to publish was not in the log."""
        if not self.is_published and self.manifest is None:
            raise self._lost("is not in the staging topic, which was created anew")

    def published(self) -> None:
        """Note that the last batch is published completely."""
        now = self.bookmark
        self.bookmark = Bookmark(now.offset, now.batch, now.attempt)

    def _lost(self, why: str) -> StagingLost:
        mark = self.bookmark
        return StagingLost(
            f"batch {mark.batch} was being published when the query stopped, and its manifest"
            f" (offset {mark.offset}) {why}. To continue without it, commit batch {mark.batch} as"
            " published in the query's group. retention.ms must exceed the time that a query may"
            " stop for"
        )
