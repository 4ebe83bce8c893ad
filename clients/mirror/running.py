"""A link that is restarted when it fails, until it is stopped."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from qbus.errors import QbusError
from qbus.service.backoff import Backoff

from .config import LinkConfig
from .session import Session, session
from .status import LinkStatus

_log = logging.getLogger(__name__)

_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


class RunningLink:
    """One link of a mirror. Call :meth:`start` in an event loop."""

    def __init__(
        self,
        config: LinkConfig,
        open_session: Callable[[LinkConfig], AbstractAsyncContextManager[Session]] = session,
    ) -> None:
        self.config = config
        self._open_session = open_session
        self._session: Session | None = None
        self._error: str | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the link."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop fetching, drain what was sent within ``drain_timeout_ms``, and stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def status(self) -> LinkStatus:
        """Return the status of the link."""
        config = self.config
        if self._session is not None:
            status = self._session.status()
        else:
            status = LinkStatus(name=config.name, source=config.source, target=config.target)
        return status if self._error is None else replace(status, error=self._error)

    async def _run(self) -> None:
        backoff = Backoff(_PAUSE_S, _LONGEST_PAUSE_S, jitter=0)
        while True:
            try:
                async with self._open_session(self.config) as found:
                    self._session, self._error = found, None
                    backoff.succeeded()
                    await found.run()
            except (QbusError, OSError) as error:
                self._error = str(error) or type(error).__name__
                _log.warning("link %s: %s; trying again", self.config.name, self._error)
            except Exception:  # noqa: BLE001 - the other links, and this one, go on
                self._error = "internal error; see the log"
                _log.exception("link %s failed unexpectedly; trying again", self.config.name)
            await asyncio.sleep(backoff.failed())
