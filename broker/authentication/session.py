"""The state of one connection's authentication. Pure: callers pass the time.

A client chooses a mechanism (SaslHandshake), exchanges its messages (SaslAuthenticate, or frames
without headers after version 0 of the handshake), and is authenticated. It may do so again later on
(KIP-368), with the same mechanism and as the same user, and sends nothing else until that is done.
"""

from enum import Enum
from typing import Final, NamedTuple

from qbus.errors import AuthenticationError

from .exchange import Exchange, Identity

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36

_MIN_REAUTHENTICATION_S: Final = 1.0


class Phase(Enum):
    """What a connection may say next."""

    HANDSHAKE = "handshake"
    EXCHANGE = "exchange"
    DONE = "done"
    OVER = "over"


class Former(NamedTuple):
    """What must stay the same when a client authenticates again."""

    mechanism: str
    user: str


class Choice(Enum):
    """What becomes of a client's choice of a mechanism."""

    TAKEN = "taken"
    UNKNOWN = "unknown"
    OUT_OF_TURN = "out of turn"
    TOO_SOON = "too soon"


class SaslSession:
    """One connection: which phase it is in, and as whom it is authenticated."""

    __slots__ = (
        "exchange",
        "former",
        "has_headers",
        "is_revoked",
        "mechanism",
        "mechanisms",
        "outer_limit",
        "phase",
        "restarted_at",
        "user",
    )

    def __init__(self, mechanisms: tuple[str, ...], outer_limit: float | None = None) -> None:
        """``outer_limit``: when the client's certificate ends, in seconds of the event loop."""
        self.mechanisms = mechanisms
        self.outer_limit = outer_limit
        self.phase = Phase.HANDSHAKE
        self.mechanism = ""
        self.user = ""
        self.has_headers = True
        self.exchange: Exchange | None = None
        self.former: Former | None = None
        self.is_revoked = False
        self.restarted_at: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the client is authenticated, and may ask for anything until its session ends."""
        return self.phase is Phase.DONE and not self.is_revoked

    @property
    def purpose(self) -> str:
        """What is going on, for messages."""
        return "authentication" if self.former is None else "re-authentication"

    def refusal(self, api_key: int, *, is_expired: bool) -> str | None:
        """Why a request may not be answered now; None: it may."""
        if self.phase is Phase.DONE:
            if self.is_revoked:
                return "the user was removed"
            if is_expired and api_key != SASL_HANDSHAKE:
                return "the session has expired"
            return None
        if self.phase is Phase.HANDSHAKE:
            allowed = api_key in {API_VERSIONS, SASL_HANDSHAKE}
        else:
            allowed = self.phase is Phase.EXCHANGE and api_key == SASL_AUTHENTICATE
        return None if allowed else f"a request (API {api_key}) out of turn in {self.purpose}"

    def choose(self, mechanism: str, *, has_headers: bool, now: float) -> Choice:
        """Take the client's choice of a mechanism.

        Another mechanism than before is refused with its first message, as Kafka does it.
        """
        if self.phase is Phase.DONE:
            last = self.restarted_at
            if last is not None and now - last < _MIN_REAUTHENTICATION_S:
                return Choice.TOO_SOON
            self.restarted_at = now
            self.former = Former(self.mechanism, self.user)
        elif self.phase is not Phase.HANDSHAKE:
            self.phase = Phase.OVER
            return Choice.OUT_OF_TURN
        if mechanism not in self.mechanisms:
            self.phase = Phase.OVER
            return Choice.UNKNOWN
        self.phase = Phase.EXCHANGE
        self.mechanism = mechanism
        self.has_headers = has_headers
        return Choice.TAKEN

    def check_mechanism(self) -> None:
        """Check that a client that authenticates again kept to its mechanism.

        Raises:
            AuthenticationError: it did not; the message may be told.
        """
        former = self.former
        if former is not None and former.mechanism != self.mechanism:
            raise Changed(
                f"SASL mechanism '{self.mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{former.mechanism}'"
            )

    def succeed(self, identity: Identity) -> None:
        """The exchange has shown who the client is.

        Raises:
            AuthenticationError: it was somebody else before; the message may be told.
        """
        former = self.former
        if former is not None and former.user != identity.name:
            raise Changed("Cannot change principals during re-authentication")
        self.phase = Phase.DONE
        self.user = identity.name
        self.exchange = None

    def fail(self) -> None:
        """The exchange has failed: the connection is of no use any more."""
        self.phase = Phase.OVER
        self.exchange = None


class Changed(AuthenticationError):  # noqa: N818 - what it is
    """A client that authenticates again is another one, or does it in another way."""


def lifetime_ms(identity: Identity, max_ms: int, unix_now: float) -> int:
    """How long a session lasts, in milliseconds; 0: without end.

    ``max_ms``: ``connections.max.reauth.ms``, 0 for none. At least a millisecond: 0 would be none.
    """
    if identity.expires_at is None:
        return max_ms
    left = max(int((identity.expires_at - unix_now) * 1000), 1)
    return min(left, max_ms) if max_ms else left
