"""How far a replica has its records where they count: on stable storage, or written.

A durable topic's records count once they are on stable storage, those of another one as soon as
they are written: these are brought to stable storage later. One flush of a log is under way at a
time. What is written meanwhile goes into the next one, see :mod:`.flusher`.
"""

from collections.abc import Callable

from ..log import Log
from .flusher import FlushThreads


class StableStorage:
    """Brings one replica's log to stable storage. For the event loop.

    ``durable``: see above. ``is_flushing``: a thread is at it.
    """

    __slots__ = ("_advanced", "_failed", "_flusher", "_log", "durable", "is_flushing")

    def __init__(
        self,
        log: Log,
        flusher: FlushThreads,
        advanced: Callable[[int], object],
        failed: Callable[[BaseException], object],
    ) -> None:
        """``advanced`` is told the :attr:`end` after each flush, ``failed`` why one failed."""
        self.durable = True
        self.is_flushing = False
        self._log = log
        self._flusher = flusher
        self._advanced = advanced
        self._failed = failed

    @property
    def end(self) -> int:
        """The offset up to which everything counts."""
        return self._log.flushed_offset if self.durable else self._log.log_end_offset

    @property
    def is_behind(self) -> bool:
        """Whether something waits for a flush, and none is under way."""
        return not self.is_flushing and self.end < self._log.log_end_offset

    def written(self, end: int) -> bool:
        """Note that records up to ``end`` came into the log; whether they count from now on.

        What does not, and what has waited long enough, is flushed.
        """
        if self.durable:
            self.flush()
            return False
        if end - self._log.flushed_offset >= self._log.config.flush_messages:
            self.flush()
        return True

    def flush(self) -> None:
        """Begin to flush what is written, unless a flush is under way."""
        if not self.is_flushing:
            self.is_flushing = True
            self._flusher.submit(self._log.flush, self._flushed)

    def _flushed(self, result: int | BaseException) -> None:
        self.is_flushing = False
        if isinstance(result, BaseException):
            self._failed(result)
            return
        self._advanced(self.end)
        if self.is_behind:
            self.flush()
