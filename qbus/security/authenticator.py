"""Authentication of a connection with SASL, and again before its session ends (KIP-368)."""

import asyncio
import logging
import random
from typing import Any, Protocol

from qbus.errors import NoToken, QbusError
from qbus.wire import ApiKey

from .client import ClientSecurity
from .connecting import OutgoingSecurity, authenticate, reauthenticate_after

_log = logging.getLogger(__name__)

_SHORTEST_S = 0.05
"""A session is not renewed sooner, however short a broker says that it is."""
_TOKEN_PAUSE_S = 2.0
"""Between attempts to get a token for a session that still goes on."""


class Link(Protocol):
    """The part of a connection that authentication needs."""

    async def ask_sasl(self, api: ApiKey, message: Any) -> Any:
        """Return the response to a request of SASL, also while others are held back."""

    def hold(self) -> None:
        """Keep back requests from now on: a broker takes nothing else between those of SASL."""

    def go_on(self) -> None:
        """Send what was kept back."""

    def abort(self, reason: str = "closed") -> None:
        """Close at once."""


class Authenticator:
    """Authenticates one connection, and does so again in time, as long as it is open."""

    def __init__(self, name: str, link: Link, security: OutgoingSecurity) -> None:
        self._name = name
        self._link = link
        self._security = security
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None

    async def authenticate(self, settings: ClientSecurity) -> None:
        """Authenticate as ``settings`` say.

        Raises as :func:`~.connecting.authenticate`.
        """
        lifetime = await authenticate(self._link.ask_sasl, settings)
        if lifetime:
            again = reauthenticate_after(lifetime, random.random())  # noqa: S311
            self._renew_in(max(again, _SHORTEST_S))

    def stop(self) -> None:
        """Renew nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._renewal is not None:
            self._renewal.cancel()

    def _renew_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._begin_renewal)

    def _begin_renewal(self) -> None:
        self._renewal = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        try:
            settings, _ = await self._security.credentials()
        except NoToken as error:  # the session goes on until its end
            _log.warning("%s: the session cannot be renewed yet: %s", self._name, error)
            self._renew_in(_TOKEN_PAUSE_S)
            return
        self._link.hold()
        try:
            await self.authenticate(settings)
        except QbusError as error:
            reason = str(error).removeprefix(f"{self._name}: ")
            _log.warning("%s: the session is not renewed: %s", self._name, reason)
            self._link.abort(reason)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody is left waiting
            _log.exception("%s: the session is not renewed", self._name)
            self._link.abort(f"the session is not renewed: {type(error).__name__}")
        else:
            self._link.go_on()
