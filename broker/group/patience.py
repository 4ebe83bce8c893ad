"""Waiting for the store, but not for ever."""

import asyncio
import logging
from functools import partial
from typing import Any, Final

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode

from .layout import MalformedGroupError
from .timers import Timers

_log = logging.getLogger(__name__)

PATIENCE: Final = 5.0
"""Seconds for the store to answer; then clients are told to try again."""


class Patience:
    """Waits for tasks that read the store; a task goes on when nobody waits for it any more."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers

    async def wait_for(self, task: asyncio.Task[Any]) -> Any:
        """What ``task`` comes to.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS, it takes longer; COORDINATOR_NOT_AVAILABLE, it
                failed; UNKNOWN_SERVER_ERROR, what is stored is no group; or what it raised.
        """
        enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        deadline = self._clock.monotonic() + PATIENCE
        timer = self._timers.call_at(deadline, partial(_end, enough))
        try:
            await asyncio.wait({task, enough}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if not task.done():
            task.add_done_callback(_log_failure)  # nobody may be there to hear of it
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if task.cancelled():
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is shutting down")
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, ApiError):
            raise ApiError(error.code, str(error))
        _log_failure(task)
        if isinstance(error, MalformedGroupError):
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "cannot read the group's state")


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("cannot %s: %s", task.get_name(), error)


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
