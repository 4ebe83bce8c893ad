"""How many files are open: bounded, those used longest ago are closed first."""

import resource
from collections import OrderedDict

from .file import TailedFile

_RESERVED = 128
_FEWEST = 16


class Descriptors:
    """The open files, in the order of their use."""

    def __init__(self, most: int) -> None:
        """``most`` may be open; 0: as many as the system allows this process, but for a few."""
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = most or max(_FEWEST, allowed - _RESERVED)
        self._open: OrderedDict[TailedFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def used(self, file: TailedFile) -> None:
        """A file was read or looked at: others may have to be closed."""
        if file.descriptor is None:
            self._open.pop(file, None)
            return
        self._open[file] = None
        self._open.move_to_end(file)
        while len(self._open) > self.most:
            self.close(self._least(file))

    def close(self, file: TailedFile) -> None:
        """Close one."""
        file.close()
        self._open.pop(file, None)

    def close_idle(self, now: float) -> None:
        """Close what was read to its end, and has not changed for as long as its source says."""
        for file in list(self._open):
            idle = file.source.config.close_idle_ms / 1000
            if file.is_read and not file.is_left and now - file.changed_at >= idle:
                self.close(file)

    def close_all(self) -> None:
        """Close all."""
        for file in list(self._open):
            self.close(file)

    def _least(self, kept: TailedFile) -> TailedFile:
        """Whom to close: one that can be found again, rather than one that is gone with that."""
        others = [file for file in self._open if file is not kept]
        return next((file for file in others if not file.is_left), others[0] if others else kept)
