"""A follower's fetch that waits: for records, for its time to run out, or for a disk."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from qbus.wire.messages.fetch import FetchResponse

from ..partition.purgatory import Delayed, Purgatory
from .fetch_reader import FetchReader
from .replica_session import ReplicaSession

HINT_S = 0.01
"""How long what is not urgent waits for records to go along with: where the high watermark is."""


class ReplicaFetch(Delayed[FetchResponse]):
    """The answer to one request of a session. ``on_error`` is given one that has errors in it."""

    __slots__ = (
        "_executor",
        "_hint",
        "_max_bytes",
        "_min_bytes",
        "_on_error",
        "_purgatory",
        "_session",
    )

    def __init__(
        self,
        purgatory: Purgatory,
        executor: Executor,
        session: ReplicaSession,
        max_bytes: int,
        on_error: Callable[[FetchResponse], None],
    ) -> None:
        super().__init__(purgatory.loop)
        self._purgatory = purgatory
        self._executor = executor
        self._session = session
        self._max_bytes = max_bytes
        self._on_error = on_error
        self._min_bytes = 0
        self._hint: asyncio.TimerHandle | None = None

    def begin(self, min_bytes: int, seconds: float) -> None:
        """Answer at once where there is news, else wait for it, ``seconds`` at most."""
        session = self._session
        if session.waiting is not None:
            session.waiting.give_up()
        response, reader = self._gather(hints=seconds <= 0)
        if reader.cold:
            self._read_cold(response, reader)
        elif response.responses or seconds <= 0:
            self.answer(response)
        else:
            self._min_bytes = min_bytes
            session.waiting = self
            self._purgatory.fetches.add(self, seconds)
            if session.has_hints:
                self.on_hint()

    def complete(self) -> None:
        """Read what is new, and answer."""
        self.leave()
        response, reader = self._gather(hints=True)
        if reader.cold:
            self._read_cold(response, reader)
        else:
            self.answer(response)

    def withdraw(self) -> None:
        """Wait for nothing any more."""
        if self._hint is not None:
            self._hint.cancel()
            self._hint = None
        if self._session.waiting is self:
            self._session.waiting = None

    def on_news(self) -> None:
        """There is more to read, or something that is to be told at once."""
        if self._session.pending >= self._min_bytes or not self._session.pending:
            self._purgatory.schedule(self)

    def on_hint(self) -> None:
        """There is something that may wait a little for records to go along with."""
        if self._hint is None:
            self._hint = self._purgatory.loop.call_later(HINT_S, self._purgatory.schedule, self)

    def give_up(self) -> None:
        """Another request has come: answer that there is nothing, for that one gets it all."""
        self.answer(FetchResponse(session_id=self._session.session_id, responses=[]))

    def _gather(self, *, hints: bool) -> tuple[FetchResponse, FetchReader]:
        reader = FetchReader(self._max_bytes)
        response = self._session.gather(reader, hints=hints)
        if reader.failed:
            self._on_error(response)
        return response, reader

    def _read_cold(self, response: FetchResponse, reader: FetchReader) -> None:
        future = self._purgatory.loop.run_in_executor(self._executor, reader.read_cold)
        future.add_done_callback(partial(self._answer_read, response))

    def _answer_read(self, response: FetchResponse, read: asyncio.Future[None]) -> None:
        error = asyncio.CancelledError() if read.cancelled() else read.exception()
        if self.done() or error is not None:
            drop_records(response)
        if isinstance(error, Exception):
            self.fail(error)
        elif error is not None:
            self.cancel()
        else:
            self.answer(response)


def drop_records(response: FetchResponse) -> None:
    """Let go of the records of an answer that is not sent."""
    for topic in response.responses:
        for data in topic.partitions:
            close = getattr(data.records, "close", None)
            if close is not None:
                close()
