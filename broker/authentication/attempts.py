"""Failed log-ins: how many are checked. Pure: callers pass the time.

Each address may fail so many times a minute. Above that its attempts are not checked any more,
except for users who logged in from there before: whoever guesses does not lock out those who know
their password.

Guesses at one user are limited apart, for each address: after some failures the next attempt is
checked after a time that doubles with each. The user's log-ins from other addresses are not
concerned, whoever guesses.
"""

from collections import OrderedDict
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from typing import Final

from qbus.service.token_bucket import TokenBucket

_MAX_ADDRESSES: Final = 10_000
_MAX_KNOWN: Final = 10_000
_MINUTE_S: Final = 60.0
_IPV6_NETWORK: Final = 64

FREE_FAILURES: Final = 10
"""How often a log-in as a user may fail from an address before the next one has to wait."""

_FIRST_WAIT_S: Final = 1.0
_MOST_DOUBLINGS: Final = 30
_FORGOTTEN_S: Final = 900.0
_MAX_GUESSED: Final = 20_000
_DIGEST_BYTES: Final = 16


class FailedAttempts:
    """How often each address has failed lately, in bounded memory."""

    def __init__(self, per_minute: int) -> None:
        """``per_minute``: failures of one address that are checked; 0: all."""
        self.refused = 0
        self._per_minute = per_minute
        self._rate = per_minute / _MINUTE_S
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def may_try(self, host: str, user: str, now: float) -> bool:
        """Whether an attempt is checked; ``now`` in seconds of a monotonic clock."""
        if not self._per_minute:
            return True
        network = network_of(host)
        bucket = self._buckets.get(network)
        if bucket is None or not bucket.wait(self._rate, now) or (network, user) in self._known:
            return True
        self.refused += 1
        return False

    def failed(self, host: str, now: float) -> None:
        """An attempt was checked and failed."""
        if not self._per_minute:
            return
        network = network_of(host)
        bucket = self._buckets.get(network)
        if bucket is None:
            bucket = TokenBucket(now, tokens=self._per_minute, burst_s=_MINUTE_S)
            self._buckets[network] = bucket
            if len(self._buckets) > _MAX_ADDRESSES:
                self._buckets.popitem(last=False)
        if not bucket.wait(self._rate, now):  # no debts: who stops is served again soon
            bucket.spend(1)
        self._buckets.move_to_end(network)

    def knows(self, host: str, user: str) -> bool:
        """Whether a user has logged in from there, as far as is remembered."""
        return (network_of(host), user) in self._known

    def succeeded(self, host: str, user: str) -> None:
        """A user has logged in from there."""
        pair = (network_of(host), user)
        self._known[pair] = None
        self._known.move_to_end(pair)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)


class Guesses:
    """How often each address has failed to log in as each user, in bounded memory."""

    def __init__(self, longest_s: float) -> None:
        """``longest_s``: the longest wait, in seconds; 0: there is none."""
        self.refused = 0
        self._longest_s = longest_s
        self._guessed: OrderedDict[tuple[str, bytes], _Guessed] = OrderedDict()

    def may_try(self, host: str, user: str, now: float) -> bool:
        """Whether an attempt is checked; ``now`` in seconds of a monotonic clock."""
        guessed = self._find(host, user, now)
        if guessed is None or guessed.failures + guessed.under_way < FREE_FAILURES:
            return True
        if now >= guessed.until and not guessed.under_way:
            return True
        self.refused += 1
        return False

    def begin(self, host: str, user: str, now: float) -> None:
        """An attempt is being checked, which takes a while; ``end`` follows."""
        if self._longest_s:
            self._get(host, user, now).under_way += 1

    def end(self, host: str, user: str) -> None:
        """It is checked."""
        key = _pair(host, user)
        guessed = self._guessed.get(key)
        if guessed is not None:  # it was not forgotten for want of memory
            guessed.under_way = max(guessed.under_way - 1, 0)
            if not (guessed.failures or guessed.under_way):
                del self._guessed[key]

    def failed(self, host: str, user: str, now: float) -> None:
        """An attempt was checked and failed."""
        if not self._longest_s:
            return
        guessed = self._get(host, user, now)
        guessed.failures += 1
        guessed.failed_at = now
        beyond = guessed.failures - FREE_FAILURES
        if beyond >= 0:
            guessed.until = now + min(
                _FIRST_WAIT_S * 2.0 ** min(beyond, _MOST_DOUBLINGS), self._longest_s
            )

    def succeeded(self, host: str, user: str) -> None:
        """The user has logged in from there: the next wait is the shortest again.

        What has failed is not forgotten, or each log-in of the user would allow as many guesses
        again.
        """
        guessed = self._guessed.get(_pair(host, user))
        if guessed is not None:
            guessed.failures = min(guessed.failures, FREE_FAILURES - 1)
            guessed.until = 0.0

    def _find(self, host: str, user: str, now: float) -> "_Guessed | None":
        key = _pair(host, user)
        guessed = self._guessed.get(key)
        if guessed is None or guessed.under_way or now - guessed.failed_at < _FORGOTTEN_S:
            return guessed
        del self._guessed[key]
        return None

    def _get(self, host: str, user: str, now: float) -> "_Guessed":
        guessed = self._find(host, user, now)
        key = _pair(host, user)
        if guessed is None:
            guessed = self._guessed[key] = _Guessed(now)
            if len(self._guessed) > _MAX_GUESSED:
                self._guessed.popitem(last=False)
        self._guessed.move_to_end(key)
        return guessed


class _Guessed:
    """One user, from one address. ``until``: when the next attempt is checked."""

    __slots__ = ("failed_at", "failures", "under_way", "until")

    def __init__(self, now: float) -> None:
        self.failures = 0
        self.failed_at = now
        self.until = 0.0
        self.under_way = 0


def _pair(host: str, user: str) -> tuple[str, bytes]:
    """An address and a user, whose name may be of any length, in few bytes."""
    name = user.encode("utf-8", "surrogatepass")
    return network_of(host), blake2b(name, digest_size=_DIGEST_BYTES).digest()


def network_of(host: str) -> str:
    """What counts as one address: an IPv4 address, or the network of an IPv6 one."""
    if ":" not in host:
        return host
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(int(address) >> (128 - _IPV6_NETWORK))
