"""How many connections are taken on: of all, of each listener, of each address."""

from collections import Counter
from collections.abc import Mapping

_NO_LIMIT = 1 << 62


class ConnectionLimits:
    """Counts the connections of all listeners of a broker, and says which ones are too many.

    Handshakes that are not over count. The listener by which brokers reach one another is exempt
    from the limit on all, where clients have another one: they must not crowd out replication
    (KIP-612).
    """

    def __init__(
        self,
        most: int = _NO_LIMIT,
        per_ip: int = _NO_LIMIT,
        per_ip_overrides: Mapping[str, int] | None = None,
        *,
        exempt: str | None = None,
    ) -> None:
        """``exempt``: the name of that listener; None: none is."""
        self._most = most
        self._per_ip = per_ip
        self._overrides = dict(per_ip_overrides or {})
        self._exempt = exempt
        self._all = 0
        self._of_ip: Counter[str] = Counter()

    def refusal(self, listener: str, host: str) -> str | None:
        """Return why one more connection from ``host`` is too many; None: it is not."""
        if self._all >= self._most and listener != self._exempt:
            return f"the broker has {self._all} connections, and takes no more (max.connections)"
        most = self._overrides.get(host, self._per_ip)
        if self._of_ip[host] >= most:
            return f"it has {most} connections, and may have no more (max.connections.per.ip)"
        return None

    def opened(self, host: str) -> None:
        """Count a connection."""
        self._all += 1
        self._of_ip[host] += 1

    def closed(self, host: str) -> None:
        """Count it no more."""
        self._all -= 1
        self._of_ip[host] -= 1
        if not self._of_ip[host]:
            del self._of_ip[host]


def parse_overrides(items: tuple[str, ...]) -> dict[str, int]:
    """Return the limits of ``max.connections.per.ip.overrides`` by their addresses."""
    return {host: int(count) for host, _, count in (item.rpartition(":") for item in items)}
