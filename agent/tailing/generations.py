"""The generations of a log: files that rotations made of it, of which the older is read first.

Files are generations of one log if they lie in one directory, go to one topic, and have the same
name without what rotations append to it (:func:`~qbus.agent.tailing.copies.stem`). The one that has
just this name is the newest; of others the one that was written last. A generation begins when
what the older ones held is read, so that their lines come first in the partition that they share.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence

from ..positions import Position
from .copies import stem
from .file import TailedFile

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"\d+$", re.ASCII)

SharePartition = Callable[[Position, Position], bool]
"""Whether the lines of both files go to one partition, or may do so."""


def family(file: TailedFile) -> tuple[str, str, str]:
    """What the generations of one log have in common: directory, name of the log, and topic."""
    directory, name = os.path.split(file.path)
    return directory, stem(name), file.position.topic


def age(file: TailedFile) -> tuple[bool, int, int, str]:
    """A key that orders the generations of one log: the oldest comes first.

    Files that were written at the same moment are ordered by number: logrotate's oldest is highest.
    """
    name = os.path.basename(file.path)  # noqa: PTH119 - quicker
    number = _NUMBER.search(name)
    return _is_newest(file), file.mtime, -int(number[0]) if number else 0, name


def _is_newest(file: TailedFile) -> bool:
    """Whether it has the name of the log, without what rotations append."""
    name = os.path.basename(file.path)  # noqa: PTH119 - quicker
    return name == stem(name)


class Generations:
    """Which files wait for older generations of their log."""

    def __init__(self, shares_partition: SharePartition) -> None:
        self._shares_partition = shares_partition
        self._waiting: dict[TailedFile, list[tuple[TailedFile, int]]] = {}
        self._is_judging = False

    @property
    def waiting(self) -> list[TailedFile]:
        """The files that wait."""
        return list(self._waiting)

    def has_to_wait(
        self,
        file: TailedFile,
        siblings: Sequence[TailedFile],
        refresh: Callable[[TailedFile], None],
        now: float,
    ) -> bool:
        """Whether a file that has something to read may not begin yet.

        siblings: the other generations that are tailed. refresh: learns what a file holds now.
        A file that has begun goes on; it is asked for again while it waits.
        """
        if file.has_begun:
            return False
        if self._is_judging:
            return True  # it is asked for again, in its own turn
        pending = self._waiting.get(file)
        if pending is None:
            pending = self._older(file, siblings, refresh)
            is_first = True
        else:
            is_first = False
        pending = [
            (older, size) for older, size in pending if self._is_pending(older, size, file, now)
        ]
        if not pending:
            self._waiting.pop(file, None)
            file.has_begun = True
            return False
        self._waiting[file] = pending
        if is_first:
            log.info(
                "%s waits until %s is read, an older generation of the same log",
                file.path,
                ", ".join(older.path for older, _ in pending),
            )
        return True

    def left(self, file: TailedFile) -> None:
        """Forget a file that is not tailed any more; nobody waits for it."""
        self._waiting.pop(file, None)
        for pending in self._waiting.values():
            pending[:] = [(older, size) for older, size in pending if older is not file]

    def _older(
        self,
        file: TailedFile,
        siblings: Iterable[TailedFile],
        refresh: Callable[[TailedFile], None],
    ) -> list[tuple[TailedFile, int]]:
        """The older generations, and what each holds now: what is written later is not awaited."""
        older = []
        self._is_judging = True
        try:
            for sibling in siblings:
                refresh(sibling)
                if age(sibling) < age(file):
                    # Without a file of the log's own name they may be logs of several writers.
                    sibling.is_rotated = sibling.is_rotated or _is_newest(file)
                    older.append((sibling, sibling.size))
        finally:
            self._is_judging = False
        return older

    def _is_pending(self, older: TailedFile, size: int, file: TailedFile, now: float) -> bool:
        if older.retries:
            log.warning(
                "%s is read before %s, an older generation of the same log: %s",
                file.path,
                older.path,
                older.error,
            )
            return False
        is_lost = older.is_gone and older.descriptor is None
        if older.is_new or is_lost or not self._shares_partition(older.position, file.position):
            return False  # what is new may be a copy, which waits for its original
        if older.is_gzip:
            return not older.is_read
        if older.read + older.rest < min(size, older.size):
            return True
        # An unfinished last line is flushed after this time: see Tailer.
        patience = 2 * older.source.config.rotated_timeout_ms / 1000
        return bool(older.rest) and now - older.changed_at < patience
