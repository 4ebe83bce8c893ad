"""Passwords in clear, checked against SCRAM credentials: for PLAIN, RESP and HTTP.

Hashing a password takes milliseconds on purpose, so threads do it, and few at a time. Addresses
take turns: one that sends many passwords makes itself wait, not others. What was right is
remembered by a keyed digest of name, password and credential; the key is drawn anew at each start,
and a changed credential has another digest. The password is never kept.
"""

import asyncio
import hmac
import os
import secrets
from collections import OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from qbus.security.credentials import Credentials
from qbus.security.scram import ScramCredential, ScramMechanism

from .attempts import network_of

_THREADS: Final = max(1, min(4, (os.cpu_count() or 1) // 2))  # others want processors, too
_MAX_WAITING: Final = 2000
_MAX_WAITING_OF_ONE: Final = 500
_MAX_REMEMBERED: Final = 10_000


class _Candidate(NamedTuple):
    """One credential that the password may fit, and how many iterations are done in all."""

    mechanism: ScramMechanism
    credential: ScramCredential
    iterations: int


class _Check(NamedTuple):
    """One password that waits for its turn."""

    password: bytes
    candidates: tuple[_Candidate, ...]
    outcome: asyncio.Future[bool]


class TooManyWaiting(Exception):  # noqa: N818 - what it is
    """More passwords wait than can be checked in reasonable time."""


class PasswordChecker:
    """Checks passwords in threads. Used from one event loop."""

    def __init__(self, credentials: Credentials) -> None:
        self.checked = 0
        self.remembered = 0
        self._credentials = credentials
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Future[bool]] = {}
        self._waiting: OrderedDict[str, deque[_Check]] = OrderedDict()
        self._count = 0
        self._running = 0
        self._threads: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Stop; what waits fails."""
        for queue in self._waiting.values():
            for check in queue:
                check.outcome.cancel()
        self._waiting.clear()
        self._count = 0
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def waiting(self) -> int:
        """Passwords that wait for a thread."""
        return self._count

    def remembers(self, user: str, password: str) -> bool:
        """Whether this was right before, and the credential is the same."""
        digest = self._digest(user, password)
        if digest not in self._known:
            return False
        self._known.move_to_end(digest)
        self.remembered += 1
        return True

    def is_checking(self, user: str, password: str) -> bool:
        """Whether the same is being checked: its outcome will do for one more that asks."""
        return self._digest(user, password) in self._under_way

    async def check(self, user: str, password: str, host: str) -> bool:
        """Whether the password is the user's; as much work if there is no such user.

        Raises:
            TooManyWaiting: it was not checked.
        """
        digest = self._digest(user, password)
        outcome = self._under_way.get(digest)
        if outcome is None:
            outcome = self._enqueue(user, password, host)
            self._under_way[digest] = outcome
            outcome.add_done_callback(lambda _: self._under_way.pop(digest, None))
        is_right = await asyncio.shield(outcome)
        if self._digest(user, password) != digest:
            return False  # the credential was changed or removed meanwhile
        if is_right:
            self._known[digest] = None
            if len(self._known) > _MAX_REMEMBERED:
                self._known.popitem(last=False)
        return is_right

    def _enqueue(self, user: str, password: str, host: str) -> asyncio.Future[bool]:
        network = network_of(host)
        queue = self._waiting.setdefault(network, deque())
        if self._count >= _MAX_WAITING or len(queue) >= _MAX_WAITING_OF_ONE:
            if not queue:
                del self._waiting[network]
            raise TooManyWaiting
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        secret = password.encode("utf-8", "surrogatepass")
        queue.append(_Check(secret, self._candidates(user), outcome))
        self._count += 1
        self._start()
        return outcome

    def _candidates(self, user: str) -> tuple[_Candidate, ...]:
        credentials = self._credentials
        return tuple(
            _Candidate(
                mechanism,
                credentials.find_or_fake(mechanism, user),
                credentials.most_iterations(mechanism),
            )
            for mechanism in ScramMechanism
        )

    def _start(self) -> None:
        """Give threads that have nothing to do what waits: an address after the other."""
        while self._waiting and self._running < _THREADS:
            network, queue = self._waiting.popitem(last=False)
            check = queue.popleft()
            self._count -= 1
            if queue:
                self._waiting[network] = queue
            if check.outcome.done():
                continue
            self._running += 1
            self._run(check)

    def _run(self, check: _Check) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="passwords")
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._threads, matches, check.password, check.candidates)

        def on_done(done: asyncio.Future[bool]) -> None:
            self._running -= 1
            self.checked += 1
            if done.cancelled() or done.exception() is not None:
                check.outcome.cancel()
            elif not check.outcome.done():
                check.outcome.set_result(done.result())
            self._start()

        done.add_done_callback(on_done)

    def _digest(self, user: str, password: str) -> bytes:
        parts = [user.encode("utf-8", "surrogatepass"), password.encode("utf-8", "surrogatepass")]
        for mechanism in ScramMechanism:
            credential = self._credentials.find(mechanism, user)
            parts.append(b"" if credential is None else credential.stored_key)
        lengths = b"".join(len(part).to_bytes(4, "big") for part in parts)
        return hmac.digest(self._key, lengths + b"".join(parts), "sha256")


def matches(password: bytes, candidates: tuple[_Candidate, ...]) -> bool:
    """Whether a password fits any of the credentials.

    It does the same work whichever fits and however many iterations each has.
    """
    is_right = False
    for mechanism, credential, iterations in candidates:
        salted = mechanism.salted_password(password, credential.salt, credential.iterations)
        is_right |= credential.matches_salted(mechanism, salted)
        missing = iterations - credential.iterations
        if missing > 0:
            mechanism.salted_password(password, credential.salt, missing)
    return is_right
