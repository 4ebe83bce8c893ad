"""A log's producer state on disk: finding, writing and removing ``.snapshot`` files."""

import logging
from collections.abc import Callable

from .files import Files, read_file, replace_file
from .names import SNAPSHOT_SUFFIX, numbered, parse_numbered
from .producers import ProducerState
from .snapshots import BadSnapshot, decode_snapshot

_logger = logging.getLogger(__name__)


class SnapshotFiles:
    """The snapshots in one log's directory."""

    __slots__ = ("_directory", "_files")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    def offsets(self) -> list[int]:
        """The offsets of all snapshots, ascending. Raises OSError."""
        numbers = map(parse_numbered, self._files.list(self._directory))
        return sorted(n[0] for n in numbers if n and n[1] == SNAPSHOT_SUFFIX)

    def newest(self) -> int:
        """The offset of the newest snapshot, -1 without any. Raises OSError."""
        return max(self.offsets(), default=-1)

    def load(self, end_offset: int, *, limit: int, start_offset: int, now_ms: int) -> ProducerState:
        """The state that the newest good snapshot up to ``end_offset`` holds.

        Removes those above it, which speak of records that are gone, and damaged ones. Without
        any the state is empty, and ends with ``start_offset``. Raises OSError.
        """
        offsets = self.offsets()
        self._remove_above(end_offset, offsets)
        for offset in reversed([offset for offset in offsets if offset <= end_offset]):
            try:
                entries = decode_snapshot(read_file(self._files, self._path(offset)))
            except BadSnapshot as bad:
                _logger.warning("%s is passed over: %s", self._path(offset), bad)
                self._files.remove(self._path(offset))
            else:
                state = ProducerState(limit, offset)
                for producer_id, epoch, batch in entries:
                    state.add(producer_id, epoch, batch, now_ms)
                return state
        return ProducerState(limit, start_offset)

    def _remove_above(self, end_offset: int, offsets: list[int]) -> None:
        """For good, before other records get the same offsets."""
        above = [offset for offset in offsets if offset > end_offset]
        for offset in above:
            self._files.remove(self._path(offset))
        if above:
            self._files.sync_directory(self._directory)

    def write(self, offset: int, content: bytes, *, sync: bool) -> None:
        """Write the snapshot of ``offset``. Raises OSError."""
        replace_file(self._files, self._path(offset), content, sync=sync)

    def remove(self, unwanted: Callable[[int], bool]) -> None:
        """Remove the snapshots whose offsets are ``unwanted``. Raises OSError."""
        for offset in self.offsets():
            if unwanted(offset):
                self._files.remove(self._path(offset))

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{numbered(offset, SNAPSHOT_SUFFIX)}"
