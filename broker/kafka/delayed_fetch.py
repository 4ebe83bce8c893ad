"""A fetch that waits: for records enough, for its time to run out, or for a disk."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from qbus.wire.messages.fetch import FetchResponse

from ..partition.purgatory import Delayed, Purgatory
from .fetch_reader import FetchReader, FetchTarget


class DelayedFetch(Delayed[FetchResponse]):
    """The response to a fetch request that cannot be answered at once.

    ``targets`` were read once and their answers are in ``response`` already. Only those that move
    on are read again: a long poll of a thousand idle partitions costs next to nothing at its end.
    ``on_error`` is given the response when a partition fails while it waits.
    """

    __slots__ = (
        "_executor",
        "_gathered",
        "_max_bytes",
        "_min_bytes",
        "_on_error",
        "_purgatory",
        "_response",
        "_targets",
        "_watching",
    )

    def __init__(
        self,
        purgatory: Purgatory,
        executor: Executor,
        response: FetchResponse,
        targets: list[FetchTarget],
        max_bytes: int,
        on_error: Callable[[FetchResponse], None],
    ) -> None:
        super().__init__(purgatory.loop)
        self._purgatory = purgatory
        self._executor = executor
        self._response = response
        self._targets = targets
        self._max_bytes = max_bytes
        self._on_error = on_error
        self._min_bytes = 0
        self._gathered = 0
        self._watching = False

    def wait(self, gathered: int, min_bytes: int, seconds: float) -> None:
        """Wait for ``min_bytes``, of which ``gathered`` are there, at most ``seconds``."""
        self._gathered = gathered
        self._min_bytes = min_bytes
        self._watching = True
        for target in self._targets:
            target.drop_records()
            target.watch(self)
        self._purgatory.fetches.add(self, seconds)

    def gather(self, size: int) -> None:
        """``size`` more bytes can be read; 0: look again at once."""
        self._gathered += size
        if size == 0 or self._gathered >= self._min_bytes:
            self._purgatory.schedule(self)

    def complete(self) -> None:
        """Read what moved on, and answer."""
        self.leave()
        reader = FetchReader(self._max_bytes)
        for target in self._targets:
            if target.moved:
                reader.read(target)
        if reader.failed:
            self._on_error(self._response)
        if reader.cold:
            self.read_cold(reader)
        else:
            self.answer(self._response)

    def withdraw(self) -> None:
        """Stop watching the partitions."""
        if self._watching:
            self._watching = False
            for target in self._targets:
                target.unwatch()

    def read_cold(self, reader: FetchReader) -> None:
        """Answer once a thread has read what ``reader`` set aside."""
        future = self._purgatory.loop.run_in_executor(self._executor, reader.read_cold)
        future.add_done_callback(self._answer_read)

    def _answer_read(self, read: asyncio.Future[None]) -> None:
        error = asyncio.CancelledError() if read.cancelled() else read.exception()
        if self.done() or error is not None:
            for target in self._targets:
                target.drop_records()
        if isinstance(error, Exception):
            self.fail(error)
        elif error is not None:
            self.cancel()
        else:
            self.answer(self._response)
