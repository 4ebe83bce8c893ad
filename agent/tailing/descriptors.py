"""A bound on open files: the least recently used ones are closed first."""

import resource
from collections import OrderedDict

from .file import TailedFile

_RESERVED = 128
_FEWEST = 16


class Descriptors:
    """The open files, in the order of their last use."""

    def __init__(self, most: int) -> None:
        """``most`` files may be open; 0: as many as the system allows, less some for other uses."""
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = most or max(_FEWEST, allowed - _RESERVED)
        self._open: OrderedDict[TailedFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def used(self, file: TailedFile) -> None:
        """Note the use of a file; close others if too many are open."""
        if file.descriptor is None:
            self._open.pop(file, None)
            return
        self._open[file] = None
        self._open.move_to_end(file)
        while len(self._open) > self.most:
            self.close(self._least(file))

    def close(self, file: TailedFile) -> None:
        """Close a file."""
        file.close()
        self._open.pop(file, None)

    def close_idle(self, now: float) -> None:
        """Close files that are read to their end and unchanged for their ``close_idle_ms``."""
        for file in list(self._open):
            idle = file.source.config.close_idle_ms / 1000
            if file.is_read and not file.is_rotated and now - file.changed_at >= idle:
                self.close(file)

    def close_all(self) -> None:
        """Close all files."""
        for file in list(self._open):
            self.close(file)

    def _least(self, kept: TailedFile) -> TailedFile:
        """Return the file to close: preferably one that can be opened again."""
        others = [file for file in self._open if file is not kept]
        return next((file for file in others if not file.is_rotated), others[0] if others else kept)
