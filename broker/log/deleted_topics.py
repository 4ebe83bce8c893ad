"""Which deleted topics may still have logs in a data directory.

A broker removes the logs of many deleted topics in the background. It writes their ids down first,
so that a start after a crash removes what is left of them. A log of a topic of the same name that
was created since has another id, and stays.
"""

import logging
import threading
from collections.abc import Collection

from .checkpoints import DELETED_TOPICS, BadCheckpoint, decode_topic_ids, encode_topic_ids
from .files import Files, read_file, write_atomically

_logger = logging.getLogger(__name__)


class DeletedTopics:
    """The ids of topics in ``deleted-topics-checkpoint``. Thread-safe; all but asking waits."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{DELETED_TOPICS}"
        self._ids: set[bytes] = set()
        self._lock = threading.Lock()

    def __contains__(self, topic_id: bytes | None) -> bool:
        return topic_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def load(self) -> None:
        """Read what is there. Raises OSError."""
        if self._files.exists(self._path):
            try:
                self._ids = set(decode_topic_ids(read_file(self._files, self._path)))
            except BadCheckpoint as bad:
                _logger.error("%s is passed over: %s", self._path, str(bad))  # noqa: TRY400

    def add(self, topic_ids: Collection[bytes]) -> None:
        """Write down that topics were deleted; stable on return. Raises OSError."""
        with self._lock:
            self._save(self._ids | set(topic_ids))

    def discard(self, topic_ids: Collection[bytes]) -> None:
        """Forget topics of which nothing is left here, by names that are stable. Raises OSError."""
        with self._lock:
            self._save(self._ids - set(topic_ids))

    def clear(self) -> None:
        """Forget all of them likewise. Raises OSError."""
        with self._lock:
            self._save(set())

    def _save(self, ids: set[bytes]) -> None:
        if ids == self._ids:
            return
        if ids:
            write_atomically(self._files, self._path, encode_topic_ids(sorted(ids)))
        else:
            self._files.remove(self._path)  # what a crash brings back does no harm
        self._ids = ids
