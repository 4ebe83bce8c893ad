"""Failed log-ins by address: how many are checked. Pure: callers pass the time.

Each address may fail so many times a minute. Above that its attempts are not checked any more,
except for users who logged in from there before: whoever guesses does not lock out those who know
their password. Against guesses at such a user from its own address there is the delay of answers.
"""

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import Final

from qbus.service.token_bucket import TokenBucket

_MAX_ADDRESSES: Final = 10_000
_MAX_KNOWN: Final = 10_000
_MINUTE_S: Final = 60.0
_IPV6_NETWORK: Final = 64


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

    def succeeded(self, host: str, user: str) -> None:
        """A user has logged in from there."""
        pair = (network_of(host), user)
        self._known[pair] = None
        self._known.move_to_end(pair)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)


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
