"""The generations of a log: files that rotations made of it, of which the older is read first.

Files are generations of one log if they lie in one directory, go to one topic, and have the same
name without what rotations append to it (:func:`~qbus.agent.tailing.copies.stem`). The one that has
just this name is the newest; of others the one that was written last. A generation begins when
what the older ones held is read, so that their lines come first in the partition that they share.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable

from ..positions import Position
from .copies import stem
from .file import TailedFile

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"\d+$", re.ASCII)

SharePartition = Callable[[Position, Position], bool]
"""Whether the lines of both files go to one partition, or may do so."""


def family(file: TailedFile) -> tuple[str, str, str]:
    """What the generations of one log have in common: directory, name of the log, and topic."""
    directory, name = os.path.split(file.position.real or file.path)
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


class _Snapshot:
    """The generations of a log at one moment, the oldest first, and what each of them held.

    ``number``: that of a later snapshot is higher.
    """

    __slots__ = ("files", "number", "sizes")

    def __init__(self, files: Iterable[TailedFile], number: int) -> None:
        self.files = sorted(files, key=age)
        self.sizes = [file.size for file in self.files]
        self.number = number


class _Place:
    """The place of a file in a snapshot: it waits for the ``left`` files that come first."""

    __slots__ = ("is_asked_for", "left", "snapshot")

    def __init__(self, snapshot: _Snapshot, left: int) -> None:
        self.snapshot = snapshot
        self.left = left
        self.is_asked_for = False


class Generations:
    """Which files wait for older generations of their log.

    Who is older is decided once for all generations that have something to read: a file that is
    written meanwhile does not change it. So no two files wait for each other.
    """

    def __init__(self, shares_partition: SharePartition) -> None:
        self._shares_partition = shares_partition
        self._places: dict[TailedFile, _Place] = {}
        self._gone: set[TailedFile] = set()
        self._snapshots = 0
        self._is_judging = False

    @property
    def is_anyone_waiting(self) -> bool:
        """Whether a file waits."""
        return bool(self._places)

    def due(self, now: float) -> list[TailedFile]:
        """Return the files that need not wait any longer: the caller asks for them again."""
        return [file for file in self._places if self._awaited(file, now) is None]

    def has_to_wait(
        self,
        file: TailedFile,
        siblings: Callable[[], Iterable[TailedFile]],
        refresh: Callable[[TailedFile], None],
        now: float,
    ) -> bool:
        """Whether a file that has something to read may not begin yet.

        siblings: returns the other generations that are tailed. refresh: learns what a file holds
        now. A file that has begun goes on; it is asked for again while it waits.
        """
        if file.has_begun:
            return False
        if self._is_judging:
            return True  # it is asked for again, in its own turn
        if file not in self._places:
            self._judge(file, siblings(), refresh)
        place = self._places[file]
        is_first, place.is_asked_for = not place.is_asked_for, True
        if is_first and _is_newest(file):
            # Without a file of the log's own name they may be logs of several writers.
            for older in place.snapshot.files[: place.left]:
                older.is_rotated = True
        awaited = self._awaited(file, now)
        if awaited is None:
            self._remove(file)
            file.has_begun = True
            return False
        if is_first:
            log.info(
                "%s waits until %s is read, an older generation of the same log",
                file.path,
                awaited.path,
            )
        return True

    def left(self, file: TailedFile) -> None:
        """Forget a file that is not tailed any more; nobody waits for it."""
        if self._places:
            self._gone.add(file)
            self._remove(file)

    def _remove(self, file: TailedFile) -> None:
        self._places.pop(file, None)
        if not self._places:
            self._gone.clear()

    def _judge(
        self,
        file: TailedFile,
        siblings: Iterable[TailedFile],
        refresh: Callable[[TailedFile], None],
    ) -> None:
        """Order the generations, and note what each holds now: what is written later is not
        awaited.
        """
        files = [file, *siblings]
        self._is_judging = True
        try:
            for sibling in files[1:]:
                refresh(sibling)
        finally:
            self._is_judging = False
        self._snapshots += 1
        snapshot = _Snapshot(files, self._snapshots)
        for index, generation in enumerate(snapshot.files):
            has_rest = not generation.is_read or generation.rest
            if generation is file or (has_rest and not generation.has_begun):
                self._places.setdefault(generation, _Place(snapshot, index))

    def _awaited(self, file: TailedFile, now: float) -> TailedFile | None:
        """Return the youngest of the older generations that a file waits for; None: it is none.

        Those that are read are not looked at again.
        """
        place = self._places[file]
        while place.left:
            older = place.snapshot.files[place.left - 1]
            if self._is_pending(older, place, file, now):
                return older
            place.left -= 1
        return None

    def _is_pending(self, older: TailedFile, place: _Place, file: TailedFile, now: float) -> bool:
        theirs = self._places.get(older)
        is_later = theirs is not None and theirs.snapshot.number > place.snapshot.number
        if is_later or older in self._gone:
            return False  # what it holds now came after the snapshot
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
        if older.read + older.rest < min(place.snapshot.sizes[place.left - 1], older.size):
            return True
        # An unfinished last line is flushed after this time: see Tailer.
        patience = 2 * older.source.config.rotated_timeout_ms / 1000
        return bool(older.rest) and now - older.changed_at < patience
