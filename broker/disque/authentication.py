"""Who a client of jobs is: ``AUTH password``, ``AUTH user password``, or either with ``HELLO 3``.

One password for all is ``disque.requirepass``; whoever gives it is ``User:default``, as Redis calls
the user without a name. Users are those of SASL. A wrong password is answered late, and a
connection has few attempts.
"""

import asyncio
import hmac
from collections.abc import Callable
from typing import Final, Protocol

from ..net.peer import ANONYMOUS, Principal
from . import errors
from .connection import Client
from .errors import CommandError

DEFAULT_USER: Final = "default"
"""The user of those who give the password that all share."""

_SHARED: Final = "AUTH"
"""In place of a mechanism: the password that all share."""

MOST_FAILURES: Final = 3
"""How often a connection may fail to authenticate: it is closed with the answer to the last one."""

MAX_COMMAND: Final = 64 * 1024
"""How many bytes a command may have before its client is authenticated."""


Note = Callable[[str, str, str, str], None]
"""Is told of a log-in that the users of SASL were not asked about.

The user's name, the mechanism, the address, and why it failed; empty: it did not.
"""


def tell_nobody(_user: str, _mechanism: str, _host: str, _reason: str) -> None:
    """Stands for a :data:`Note` where nobody listens."""


class Users(Protocol):
    """The users of SASL."""

    async def verify(self, user: str, password: str, host: str) -> Principal | None:
        """Who gives this name and password from the address ``host``; None: it is wrong."""

    def track(self, user: str, close: Callable[[str], None]) -> Callable[[], None]:
        """Call ``close`` with the reason once ``user`` is removed; the result ends that."""


class Authentication:
    """Decides who clients are. ``password`` may be changed while it is used."""

    def __init__(
        self,
        password: bytes = b"",
        users: Users | None = None,
        *,
        delay_s: float = 0.1,
        session_s: float = 0.0,
        note: Note = tell_nobody,
    ) -> None:
        """``password``: what all clients share; empty: there is none. ``users``: None: no users.

        ``delay_s``: how late a wrong password is answered. ``session_s``: how long an
        authentication lasts, in seconds; 0: as long as the connection. ``note``: see :data:`Note`.
        """
        self._users = users
        self.password = password
        self.note = note
        self._delay_s = delay_s
        self._session_s = session_s
        self.succeeded = 0
        self.failed = 0

    @property
    def password(self) -> bytes:
        """What all clients share; empty: there is none."""
        return self._password

    @password.setter
    def password(self, password: bytes) -> None:
        self._password = password
        self.is_required = bool(password) or self._users is not None
        """Whether clients have to say who they are before anything else."""

    def is_current(self, client: Client) -> bool:
        """Whether a client has said who it is as lately as it has to, or need not."""
        if client.is_authenticated:
            return not client.expires_at or asyncio.get_running_loop().time() < client.expires_at
        return not self.is_required

    def need(self, client: Client) -> None:
        """Refuse a client that has not said who it is, or not lately. Raises CommandError."""
        if client.is_authenticated:
            if self.is_current(client):
                return
            self.forget(client)
            client.is_over = True  # clients authenticate when they connect again
            raise CommandError(errors.NEEDS_PASSWORD)
        if self.is_required:
            raise CommandError(errors.NEEDS_PASSWORD)

    async def authenticate(self, client: Client, user: bytes | None, password: bytes) -> None:
        """Take what a client says; ``user`` None: it gave the password alone.

        Raises CommandError: it is wrong.
        """
        if not self.is_required:
            raise CommandError("ERR Client sent AUTH, but no password is set")
        self.forget(client)
        principal = await self._principal(client.host, user, password)
        if principal is None:
            self.failed += 1
            await asyncio.sleep(self._delay_s)
            client.failures += 1
            client.is_over = client.is_over or client.failures >= MOST_FAILURES
            raise CommandError(errors.WRONG_PASSWORD if user is None else errors.WRONG_PAIR)
        self.succeeded += 1
        client.failures = 0
        client.principal = principal
        client.is_authenticated = True
        if self._users is not None and user is not None:
            client.untrack = self._users.track(principal.name, client.close)
        if self._session_s:
            client.expires_at = asyncio.get_running_loop().time() + self._session_s

    def forget(self, client: Client) -> None:
        """Take a client for nobody, or for gone."""
        client.is_authenticated = False
        client.principal = ANONYMOUS
        client.grants.clear()
        if client.untrack is not None:
            client.untrack()
            client.untrack = None

    async def _principal(self, host: str, user: bytes | None, password: bytes) -> Principal | None:
        if user is None or user == DEFAULT_USER.encode():
            if self.password and hmac.compare_digest(password, self.password):
                self.note(DEFAULT_USER, _SHARED, host, "")
                return Principal("User", DEFAULT_USER)
            if user is None:
                self.note(DEFAULT_USER, _SHARED, host, "the password is wrong")
                return None
        if self._users is None:
            self.note(user.decode("utf-8", "replace"), _SHARED, host, "the user is wrong")
            return None
        try:
            name, text = user.decode(), password.decode()
        except UnicodeDecodeError:
            return None
        return await self._users.verify(name, text, host)
