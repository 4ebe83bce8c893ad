"""One exchange of messages for each mechanism, the server's side.

An exchange ends with an :class:`Identity`, or with an AuthenticationError, whose message is for the
log: a client is not told what was wrong.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from qbus.errors import AuthenticationError, WrongPassword
from qbus.security.sasl import bearer_error, parse_bearer, parse_plain
from qbus.security.scram import Lookup, ScramMechanism, ScramServer

_ANY_USER: Final = ""


class Identity(NamedTuple):
    """Who a client is; ``expires_at``: until when that is certain, in Unix seconds."""

    name: str
    expires_at: float | None = None


class Step(NamedTuple):
    """The server's next message, and who the client is, once that is clear."""

    message: bytes
    identity: Identity | None = None


class Exchange(Protocol):
    """One log-in."""

    @property
    def claimed(self) -> str:
        """What the client calls itself; ``""`` while it did not say."""

    async def step(self, message: bytes) -> Step:
        """Take the client's next message.

        Raises:
            AuthenticationError: it is over, without success.
        """


Admit = Callable[[str], None]
"""Is asked before an attempt to log in as this user is checked; ``""``: as somebody.

Raises Unchecked where it is not.
"""

CheckPassword = Callable[[str, str], Awaitable[bool]]
"""Whether a password is a user's. Raises AuthenticationError where it was not checked."""


class Unchecked(AuthenticationError):  # noqa: N818 - what it is
    """An attempt that was not checked, and so counts for nothing."""

    def __init__(self, reason: str = "too many attempts from this address have failed") -> None:
        super().__init__(reason)


class TryLater(Unchecked):
    """An attempt that is not checked now: the client had better try again, and is not refused."""


class Overloaded(TryLater):
    """An attempt that comes when too many others wait."""

    def __init__(self) -> None:
        super().__init__("too many passwords wait to be checked")


class TooManyGuesses(TryLater):
    """An attempt as a user who was guessed at too often from the same address."""

    def __init__(self) -> None:
        super().__init__("too many attempts as this user from this address have failed lately")


class PlainExchange:
    """PLAIN: one message with name and password."""

    def __init__(self, check: CheckPassword) -> None:
        """``check`` also counts the attempt."""
        self.claimed = ""
        self._check = check

    async def step(self, message: bytes) -> Step:
        """Check the password."""
        plain = parse_plain(message)
        self.claimed = plain.username
        if not await self._check(plain.username, plain.password):
            raise WrongPassword("the user name or the password is wrong")
        return Step(b"", Identity(plain.username))


class ScramExchange:
    """SCRAM: two messages each way. Fast, since the client has done the hashing."""

    def __init__(self, mechanism: ScramMechanism, lookup: Lookup, admit: Admit) -> None:
        self._server = ScramServer(mechanism, lookup)
        self._admit = admit
        self._has_begun = False
        self._refusal: Unchecked | None = None

    @property
    def claimed(self) -> str:
        """The user that the client names."""
        return self._server.username

    async def step(self, message: bytes) -> Step:
        """Answer the first message; check the proof in the second."""
        if self._refusal is not None:
            raise self._refusal
        server = self._server
        if self._has_begun:  # others may have failed since the first message
            self._admit(server.username)
        answer = server.step(message)
        if server.is_complete:
            return Step(answer, Identity(server.username))
        self._has_begun = True
        try:
            self._admit(server.username)
        except TryLater:
            raise
        except Unchecked as refusal:  # it looks like a wrong password
            self._refusal = refusal
        return Step(answer)


class TokenService(Protocol):
    """Decides about bearer tokens."""

    async def verify(self, token: str) -> Identity:
        """Who a token is of.

        Raises:
            TokenRefused: it is not accepted.
        """

    async def look_after(self) -> None:
        """Read the keys, if it is time for that."""

    def close(self) -> None:
        """Stop reading keys."""


class TokenRefused(AuthenticationError):  # noqa: N818 - what it is
    """A token is not accepted; ``status`` is RFC 6750's: invalid_token or insufficient_scope."""

    def __init__(self, reason: str, status: str = "invalid_token", scope: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


class BearerExchange:
    """OAUTHBEARER: one message with a token. What is wrong with it is told before the failure."""

    def __init__(self, tokens: TokenService, admit: Admit) -> None:
        self.claimed = ""
        self._tokens = tokens
        self._admit = admit
        self._refusal: AuthenticationError | None = None

    async def step(self, message: bytes) -> Step:
        """Check the token. After a refusal the client sends one more byte (RFC 7628, 3.2.3)."""
        if self._refusal is not None:
            raise self._refusal
        bearer = parse_bearer(message)
        self._admit(_ANY_USER)
        try:
            identity = await self._tokens.verify(bearer.token)
        except TokenRefused as refusal:
            self._refusal = refusal
            return Step(bearer_error(refusal.status, refusal.scope))
        self.claimed = identity.name
        if bearer.authzid not in {"", identity.name}:
            raise AuthenticationError("an authorization id that is not the user of the token")
        return Step(b"", identity)
