"""Authentication of clients: what connections, handlers and other protocols ask."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from qbus.clock import Clock
from qbus.config import BrokerConfig
from qbus.errors import AuthenticationError, WrongPassword
from qbus.security.credentials import Credentials, credentials_of
from qbus.security.sasl import OAUTHBEARER, PLAIN
from qbus.security.scram import ScramMechanism

from ..metadata.cache import MetadataCache
from ..metadata.image import Event, UserConfigChanged
from ..net.connection import CloseConnection
from ..net.peer import Peer, Principal
from ..net.transport import Part
from .attempts import FailedAttempts, Guesses
from .exchange import (
    BearerExchange,
    Exchange,
    Identity,
    Overloaded,
    PlainExchange,
    ScramExchange,
    Step,
    TokenService,
    TooManyGuesses,
    TryLater,
    Unchecked,
)
from .passwords import PasswordChecker, TooManyWaiting
from .session import Changed, Choice, Phase, SaslSession, lifetime_ms

if TYPE_CHECKING:
    from ..metrics import Metrics

_log = logging.getLogger(__name__)

BY_CERTIFICATE: Final = "TLS"
"""In place of a mechanism: the client has shown a certificate."""

_KEY_SIZE: Final = 2
_PREFIX_SIZE: Final = 4
_WARNING_INTERVAL_S: Final = 10.0
_LONGEST_TOLD_MS: Final = 2**31 - 1  # clients count it in nanoseconds, of which 64 bits hold few


class Outcome(NamedTuple):
    """An attempt to authenticate, for the audit log. ``user`` is who the client claims to be."""

    user: str
    mechanism: str
    host: str
    listener: str
    is_success: bool
    reason: str


Observer = Callable[[Outcome], None]


class Answer(NamedTuple):
    """What a message of a mechanism is answered with; ``error`` is for the client."""

    message: bytes = b""
    lifetime_ms: int = 0
    error: str | None = None


class Authentication:
    """Who clients are. One for a broker, used from its event loop.

    ``observers`` are told of each attempt.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: MetadataCache,
        credentials: Credentials,
        tokens: Mapping[str, TokenService] | None = None,
    ) -> None:
        """``tokens`` decides about OAUTHBEARER on each listener where it is enabled."""
        self.credentials = credentials
        self.passwords = PasswordChecker(credentials)
        self.attempts = FailedAttempts(config.connection_failed_authentication_max_per_ip)
        self.guesses = Guesses(config.connection_failed_authentication_max_delay_ms / 1000)
        self.observers: list[Observer] = []
        self.successes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.reauthentications = 0
        self.expired = 0
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._tokens = tokens or {}
        self._delay_s = config.connection_failed_authentication_delay_ms / 1000
        self._listeners: dict[str, tuple[tuple[str, ...], int]] = {}
        self._followed: dict[str, dict[object, tuple[str, Callable[[str], None]]]] = {}
        self._untold = 0
        self._next_warning_at = 0.0
        for name, found in metadata.users.items():
            credentials.put(name, credentials_of(found))
        metadata.subscribe(self._on_events, is_first=True)  # no disk keeps a former user connected

    def close(self) -> None:
        """Stop checking passwords and tokens."""
        self.passwords.close()
        for tokens in self._tokens.values():
            tokens.close()

    async def look_after_tokens(self) -> None:
        """Read the keys of tokens, where it is time for that. To be called every few seconds."""
        await asyncio.gather(*(tokens.look_after() for tokens in self._tokens.values()))

    @property
    def takes_tokens(self) -> bool:
        """Whether any listener accepts OAUTHBEARER."""
        return bool(self._tokens)

    # What connections ask

    def gate(self, peer: Peer, frame: memoryview) -> "list[Part] | RawReply | None":
        """Look at a request of a client that is not authenticated, or whose session has an end.

        Returns:
            None: it is to be answered like any other. Else the answer to a message of a mechanism
            that came without a header (before KIP-152).

        Raises:
            CloseConnection: such a request is not answered now.
        """
        known, expires_at = peer.authentication, peer.expires_at
        is_expired = expires_at is not None and monotonic() >= expires_at
        if not is_expired and isinstance(known, SaslSession) and known.is_open:
            return None  # what nearly all requests of long sessions are
        session = self._session(peer)
        if session is None:
            if is_expired:
                raise CloseConnection("the client's certificate has expired")
            return None
        if session.phase is Phase.EXCHANGE and not session.has_headers:
            return RawReply(self._authenticate_raw(peer, bytes(frame)))
        api_key = int.from_bytes(frame[:_KEY_SIZE], "big", signed=True)
        refusal = session.refusal(api_key, is_expired=is_expired)
        if refusal is None:
            return None
        if is_expired:
            self.expired += 1
        elif session.phase in {Phase.HANDSHAKE, Phase.EXCHANGE}:
            self._tell_failure(peer, session, refusal)
            session.fail()
        raise CloseConnection(refusal)

    def mechanisms(self, peer: Peer) -> tuple[str, ...]:
        """The mechanisms that the client's listener accepts."""
        return self._listener(peer.listener.name)[0]

    def choose(self, peer: Peer, mechanism: str, *, has_headers: bool) -> Choice:
        """Take a client's choice of a mechanism. After UNKNOWN and OUT_OF_TURN it is closed."""
        session = self._session(peer)
        if session is None:
            return Choice.TOO_SOON
        now = monotonic()
        choice = session.choose(mechanism, has_headers=has_headers, now=now)
        if choice is Choice.TAKEN:
            session.exchange = self._exchange(peer, mechanism)
            if peer.expires_at is None:
                peer.expires_at = float("inf")  # the gate sees all requests until it is done
        elif choice is not Choice.TOO_SOON:
            self._tell_failure(peer, session, f"the mechanism is {choice.value}")
        return choice

    async def wait_after_failure(self, peer: Peer, reason: str) -> None:
        """Let a client wait for the answer that it has failed, after which it is closed."""
        peer.closes_after_reply = reason
        await asyncio.sleep(self._delay_s)

    def is_authenticating(self, peer: Peer) -> bool:
        """Whether the client is to send a message of its mechanism."""
        session = self._session(peer)
        return session is not None and session.phase is Phase.EXCHANGE

    async def authenticate(self, peer: Peer, message: bytes) -> Answer:
        """Answer a message of the client's mechanism. A failure is answered after a delay.

        Only while ``is_authenticating``.
        """
        session = self._session(peer)
        if session is None or session.exchange is None:
            raise CloseConnection("a message of a mechanism that was not chosen")
        exchange = session.exchange
        try:
            session.check_mechanism()
            step = await _step(exchange, message)
            if step.identity is None:
                return Answer(step.message)
            session.succeed(step.identity)
        except AuthenticationError as error:
            reason = str(error)
            if not isinstance(error, Unchecked):
                guessed_at = exchange.claimed if isinstance(error, WrongPassword) else ""
                self._note_failure(peer.host, guessed_at)
            self._tell_failure(peer, session, reason, exchange.claimed)
            session.fail()
            await self.wait_after_failure(peer, f"{session.purpose} failed: {reason}")
            if isinstance(error, TryLater):  # clients try again after that, and after no failure
                peer.close(reason)
            told = reason if isinstance(error, Changed) else _told(session)
            return Answer(error=told)
        told_ms = min(self._admit(peer, session, step.identity), _LONGEST_TOLD_MS)
        return Answer(step.message, told_ms)

    # What other protocols ask

    async def verify(self, user: str, password: str, host: str) -> Principal | None:
        """Who a client with this name and password is; None: it is refused.

        As much work for users that do not exist. The caller delays its refusal.
        """
        try:
            is_right = await self._check_password(host, user, password)
        except AuthenticationError:
            is_right = False
        outcome = Outcome(user, PLAIN, host, "", is_right, "" if is_right else "refused")
        self._count(outcome)
        return Principal("User", user) if is_right else None

    def track(
        self, user: str, close: Callable[[str], None], mechanism: str = PLAIN
    ) -> Callable[[], None]:
        """Call ``close`` with the reason when the user may not be connected any more.

        Returns what ends that, to be called when the client is gone.
        """
        key = object()
        self._followed.setdefault(user, {})[key] = (mechanism, close)

        def release() -> None:
            followed = self._followed.get(user, {})
            followed.pop(key, None)
            if not followed:
                self._followed.pop(user, None)

        return release

    def note(
        self, user: str, mechanism: str, host: str, listener: str = "", *, reason: str = ""
    ) -> None:
        """Count and tell of a log-in that was decided elsewhere, as by a certificate.

        ``reason``: why it failed; empty: it did not.
        """
        self._count(Outcome(user, mechanism, host, listener, not reason, reason))

    # Inside

    def _listener(self, name: str) -> tuple[tuple[str, ...], int]:
        """The mechanisms of a listener, and the longest session in milliseconds."""
        found = self._listeners.get(name)
        if found is None:
            own = self._config.for_listener(name)
            found = (tuple(own.sasl_enabled_mechanisms), own.connections_max_reauth_ms)
            self._listeners[name] = found
        return found

    def _session(self, peer: Peer) -> SaslSession | None:
        """The state of a connection; None if its listener has no SASL."""
        session = peer.authentication
        if isinstance(session, SaslSession):
            return session
        if not peer.listener.protocol.is_sasl:
            return None
        peer.authentication = session = SaslSession(self.mechanisms(peer), peer.expires_at)
        return session

    def _exchange(self, peer: Peer, mechanism: str) -> Exchange:
        host = peer.host

        def admit(user: str) -> None:
            self._admit_attempt(host, user)

        async def check(user: str, password: str) -> bool:
            return await self._check_password(host, user, password, counts=False)

        scram = ScramMechanism.of(mechanism)
        if scram is not None:
            credentials = self.credentials
            return ScramExchange(scram, lambda user: credentials.find_or_fake(scram, user), admit)
        if mechanism == OAUTHBEARER:
            return BearerExchange(self._tokens[peer.listener.name], admit)
        return PlainExchange(check)

    def _admit_attempt(self, host: str, user: str) -> None:
        """Raise Unchecked where an attempt is not checked now."""
        now = monotonic()
        if not self.attempts.may_try(host, user, now):
            raise Unchecked
        if user and not self.guesses.may_try(host, user, now):
            raise TooManyGuesses

    def _note_failure(self, host: str, user: str) -> None:
        """Count a failure; ``user``: whose password was wrong, empty if none was looked at."""
        now = monotonic()
        self.attempts.failed(host, now)
        if user:
            self.guesses.failed(host, user, now)

    def _note_success(self, host: str, user: str) -> None:
        self.attempts.succeeded(host, user)
        self.guesses.succeeded(host, user)

    async def _check_password(
        self, host: str, user: str, password: str, *, counts: bool = True
    ) -> bool:
        """Whether a password is right; ``counts``: the attempt is counted here.

        Raises:
            AuthenticationError: it was not checked.
        """
        is_remembered = self.passwords.remembers(user, password)
        if is_remembered and self.attempts.knows(host, user):
            return True
        is_another = not self.passwords.is_checking(user, password)
        if is_another:  # also if it is remembered: else guesses from elsewhere would have no limit
            self._admit_attempt(host, user)
        if is_remembered:
            if counts:
                self._note_success(host, user)
            return True
        if is_another:
            self.guesses.begin(host, user, monotonic())
        try:
            is_right = await self.passwords.check(user, password, host)
        except TooManyWaiting:
            raise Overloaded from None
        finally:
            if is_another:
                self.guesses.end(host, user)
        if counts and not is_right:
            self._note_failure(host, user)
        if counts and is_right:
            self._note_success(host, user)
        return is_right

    def _admit(self, peer: Peer, session: SaslSession, identity: Identity) -> int:
        """Let an authenticated client in; return how long its session lasts, in milliseconds."""
        _, max_ms = self._listener(peer.listener.name)
        lifetime = lifetime_ms(identity, max_ms, self._clock.time_ms() / 1000)
        limits = [session.outer_limit] if session.outer_limit is not None else []
        if lifetime:
            limits.append(monotonic() + lifetime / 1000)
        peer.expires_at = min(limits, default=None)
        peer.principal = Principal("User", identity.name)
        peer.is_authenticated = True
        peer.grants.clear()
        self._note_success(peer.host, identity.name)
        if session.former is None:
            self._follow(peer, session)
        else:
            self.reauthentications += 1
        self._count(
            Outcome(
                identity.name,
                session.mechanism,
                peer.host,
                peer.listener.name,
                is_success=True,
                reason="",
            )
        )
        return lifetime

    def _follow(self, peer: Peer, session: SaslSession) -> None:
        def revoke(reason: str) -> None:
            session.is_revoked = True
            peer.expires_at = 0.0
            peer.close(reason)

        release = self.track(session.user, revoke, session.mechanism)
        peer.on_close = (*peer.on_close, release)

    async def _authenticate_raw(self, peer: Peer, message: bytes) -> list[Part]:
        answer = await self.authenticate(peer, message)
        if answer.error is not None:  # there is no form in which the client would understand it
            raise CloseConnection(peer.closes_after_reply or "authentication failed")
        return [len(answer.message).to_bytes(_PREFIX_SIZE, "big") + answer.message]

    def _tell_failure(self, peer: Peer, session: SaslSession, reason: str, user: str = "") -> None:
        mechanism = session.mechanism
        self._count(
            Outcome(user, mechanism, peer.host, peer.listener.name, is_success=False, reason=reason)
        )

    def _count(self, outcome: Outcome) -> None:
        if outcome.is_success:
            self.successes[outcome.mechanism] += 1
        else:
            self.failures[outcome.mechanism] += 1
            self._warn(outcome)
        for observer in self.observers:
            observer(outcome)

    def _warn(self, outcome: Outcome) -> None:
        """Log failures, but not each of many."""
        now = monotonic()
        if now < self._next_warning_at:
            self._untold += 1
            return
        more = f" (and {self._untold} other failures before it)" if self._untold else ""
        self._untold, self._next_warning_at = 0, now + _WARNING_INTERVAL_S
        _log.warning(
            "a client at %s failed to authenticate as %r with %s: %s%s",
            outcome.host,
            outcome.user[:100],
            outcome.mechanism or "no mechanism",
            outcome.reason,
            more,
        )

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, UserConfigChanged):
                found = credentials_of(self._metadata.users.get(event.user, {}))
                self.credentials.put(event.user, found)
                self._revoke(event.user, {mechanism.mechanism for mechanism in found})

    def _revoke(self, user: str, left: set[str]) -> None:
        """Close the connections of a user that were made with what is gone; ``left`` is not."""
        if self.credentials.is_own(user):
            return
        for mechanism, close in list(self._followed.get(user, {}).values()):
            if mechanism == OAUTHBEARER:
                continue
            if mechanism not in left and not (mechanism == PLAIN and left):
                try:
                    close("the user was removed")
                except Exception:  # noqa: BLE001 - all others are to be closed, too
                    _log.exception("a connection of the removed user %r does not close", user)


async def _step(exchange: Exchange, message: bytes) -> Step:
    """Go on with an exchange; a defect fails it as a wrong password would.

    Raises:
        AuthenticationError: it is over, without success.
    """
    try:
        return await exchange.step(message)
    except AuthenticationError:
        raise
    except Exception as error:  # noqa: BLE001 - nobody is let in when in doubt
        _log.exception("a log-in cannot be decided")
        raise AuthenticationError(f"the broker has failed: {type(error).__name__}") from None


class RawReply:
    """The answer to a message without a header."""

    exclusive = True

    def __init__(self, answering: Coroutine[Any, Any, list[Part]]) -> None:
        self._task = asyncio.ensure_future(answering)

    def done(self) -> bool:
        """Whether the answer is there."""
        return self._task.done()

    def result(self) -> list[Part]:
        """The answer. Raises CloseConnection after a failure."""
        if self._task.cancelled():
            raise CloseConnection("the broker is shutting down")
        return self._task.result()

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call back when the answer is there."""
        self._task.add_done_callback(lambda _: callback())

    def cancel(self) -> None:
        """The client is gone."""
        self._task.cancel()


def _told(session: SaslSession) -> str:
    """What a client is told of its failure: in Kafka's words, and not what was wrong."""
    if session.mechanism == PLAIN:
        return "Authentication failed: Invalid username or password"
    return (
        f"Authentication failed during {session.purpose} due to invalid credentials with SASL "
        f"mechanism {session.mechanism}"
    )


def register_metrics(metrics: "Metrics", authentication: Authentication) -> None:
    """Make what is counted here readable."""

    def by_mechanism(counts: Counter[str]) -> Callable[[], list[tuple[tuple[str], float]]]:
        return lambda: [((name or "none",), count) for name, count in list(counts.items())]

    metrics.counters_by(
        ["mechanism"],
        "authentications",
        "Number of successful authentications.",
        by_mechanism(authentication.successes),
    )
    metrics.counters_by(
        ["mechanism"],
        "authentication_failures",
        "Number of failed authentications.",
        by_mechanism(authentication.failures),
    )
    metrics.counter(
        "reauthentications",
        "Number of clients that authenticated again on the same connection.",
        lambda: authentication.reauthentications,
    )
    metrics.counter(
        "authentications_unchecked",
        "Number of attempts refused because too many from the same address,"
        " or as the same user from there, had failed.",
        lambda: authentication.attempts.refused + authentication.guesses.refused,
    )
    metrics.counter(
        "sessions_expired",
        "Number of connections closed because they did not authenticate again in time.",
        lambda: authentication.expired,
    )
    metrics.gauge(
        "passwords_waiting",
        "Number of passwords that wait to be checked.",
        lambda: authentication.passwords.waiting,
    )
