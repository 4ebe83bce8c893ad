"""Jobs that are being finished, and the reply that waits for all of them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from qbus.errors import ApiError, ErrorCode

from ..queues.types import Ranges
from . import resp
from .connection import PendingReply, Reply
from .errors import CommandError
from .finding import DeliveredJobs, Together

_log = logging.getLogger(__name__)


class _InOnePartition:
    """Jobs of one partition that are being finished: those in ``ranges``."""

    __slots__ = ("jobs", "ranges")

    def __init__(self, jobs: Together) -> None:
        self.jobs = jobs
        self.ranges: Ranges = ()


class Settling:
    """Finishes jobs that are here, and answers how many there were once all are done for good.

    ``again`` finishes those whose partitions are not led here any more.
    """

    __slots__ = ("_again", "_count", "_delivered", "_error", "_left", "_loop", "_moved", "_reply")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        delivered: DeliveredJobs,
        again: Callable[[Sequence[bytes]], Coroutine[Any, Any, int]],
    ) -> None:
        self._loop = loop
        self._delivered = delivered
        self._again = again
        self._left = 0
        self._count = 0
        self._moved: list[bytes] = []
        self._error: ApiError | None = None
        self._reply: PendingReply | None = None

    def begin(self, jobs: Together) -> None:
        """Finish jobs of one partition."""
        begun = _InOnePartition(jobs)
        try:
            begun.ranges = jobs.queue.begin_to_settle(jobs.ranges(), self, begun)
            self._left += bool(begun.ranges)
        except ApiError as error:
            begun.ranges = jobs.ranges()
            self._left += 1
            self.told(begun, error.code, error.message)

    def defer(self, texts: Sequence[bytes]) -> None:
        """Have ``again`` finish jobs, once the others are done."""
        self._moved += texts

    def reply(self) -> Reply:
        """The answer, now or later."""
        if not self._left and not self._moved:
            return self._answer()
        self._reply = PendingReply()
        if not self._left:
            self._end()
        return self._reply

    def told(self, token: object, code: ErrorCode, message: str | None) -> None:
        """See :class:`qbus.broker.queues.journal.Told`: what became of the jobs of a partition."""
        self._left -= 1
        assert isinstance(token, _InOnePartition)
        jobs = token.jobs
        if not code:
            for first, last in token.ranges:
                self._count += last - first + 1
            for job in jobs.delayed:
                self._delivered.forget(job, jobs.topic_id)
        elif code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._moved += dict.fromkeys(jobs.texts_of(token.ranges))
        else:
            self._error = ApiError(code, message)
        if not self._left and self._reply is not None:
            self._end()

    def _end(self) -> None:
        reply = self._reply
        if reply is None or reply.done():
            return
        if self._moved:
            task = self._loop.create_task(self._again(self._moved))
            task.add_done_callback(self._on_again)
        else:
            reply.answer(self._answer())

    def _on_again(self, task: asyncio.Task[int]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not isinstance(error, (CommandError, ApiError)):
            _log.error("jobs whose partitions have moved cannot be finished", exc_info=error)
        reply = self._reply
        if reply is None or reply.done():
            return
        if error is None:
            self._count += task.result()
            reply.answer(self._answer())
        elif isinstance(error, CommandError):
            reply.answer(resp.error(str(error)))
        elif isinstance(error, ApiError):
            reply.answer(resp.error(f"ERR {error}"))
        else:
            reply.cancel()

    def _answer(self) -> bytes:
        if self._error is not None:
            return resp.error(f"ERR {self._error}")
        return resp.integer(self._count)
