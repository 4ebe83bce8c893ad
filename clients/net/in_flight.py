"""The requests in flight on a connection, in order, with their deadlines."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from qbus.errors import WireError
from qbus.wire import ApiKey

from ..errors import ConnectionFailed, RequestTimedOut

Told = Callable[["asyncio.Future[memoryview]"], object]
"""What is told of an answer: at once if it arrives, else from the loop, as a done callback is."""


class _Request(NamedTuple):
    correlation_id: int
    api: ApiKey
    timeout: float
    deadline: float
    answer: asyncio.Future[memoryview]
    told: "Told | None"


class InFlightRequests:
    """Matches responses with requests, and notices missing responses.

    Calls ``on_late`` with a description when a deadline passes, even if nobody waits for that
    response any more: it blocks those behind it.
    """

    def __init__(self, on_late: Callable[[str], None]) -> None:
        self._on_late = on_late
        self._loop = asyncio.get_running_loop()
        self._requests: deque[_Request] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._requests)

    def first_id(self) -> int | None:
        """Return the correlation id of the oldest request; None: there is none."""
        return self._requests[0].correlation_id if self._requests else None

    def longest_wait(self) -> float:
        """Return the seconds until all requests are answered or late."""
        latest = max((request.deadline for request in self._requests), default=0.0)
        return max(0.0, latest - self._loop.time())

    def add(
        self,
        correlation_id: int,
        api: ApiKey,
        timeout: float,
        answer: asyncio.Future[memoryview] | None = None,
        told: Told | None = None,
    ) -> asyncio.Future[memoryview]:
        """Add a request; return the future of its response, due in ``timeout`` seconds.

        answer: that future, if somebody waits for it already.
        told: a done callback of that future, which is to be called without a turn of the loop.
        """
        if answer is None:
            answer = self._loop.create_future()
        deadline = self._loop.time() + timeout
        self._requests.append(_Request(correlation_id, api, timeout, deadline, answer, told))
        if self._timer is None or deadline < self._timer.when():
            self._watch(deadline)
        return answer

    def answered(self, frame: memoryview) -> None:
        """Complete the oldest request; raise :class:`~qbus.errors.WireError` if ``frame`` is not
        for it.
        """
        if not self._requests:
            raise WireError("a response without a request")
        request = self._requests[0]
        if frame[:4] != request.correlation_id.to_bytes(4, "big"):
            raise WireError("a response to another request")
        self._requests.popleft()
        answer, told = request.answer, request.told
        if answer.done():
            return
        if told is None:
            answer.set_result(frame)
        else:
            answer.remove_done_callback(told)
            answer.set_result(frame)
            told(answer)

    def fail(self, reason: str) -> None:
        """Fail all requests: those past their deadline have timed out, the others lost the
        connection.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._loop.time()
        for request in self._requests:
            if not request.answer.done():
                kind = RequestTimedOut if request.deadline <= now else ConnectionFailed
                request.answer.set_exception(kind(reason))
        self._requests.clear()

    def _watch(self, deadline: float) -> None:
        """Check again at ``deadline``. One timer serves all requests; it seldom fires."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._check)

    def _check(self) -> None:
        self._timer = None
        now = self._loop.time()
        late = next((request for request in self._requests if request.deadline <= now), None)
        if late is not None:
            self._on_late(f"no answer to {late.api.name} in {late.timeout} s")
        elif self._requests:
            self._watch(min(request.deadline for request in self._requests))
