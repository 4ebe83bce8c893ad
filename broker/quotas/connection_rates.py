"""How many connections a second an address may open (KIP-612).

A connection above that is accepted and closed a little later, as Kafka does: a client that is
refused at once would only try again at once.
"""

from ipaddress import ip_address

from .meter import Meter
from .resolution import Quotas, QuotaTable

MAX_ADDRESSES = 100_000


class ConnectionRates:
    """Decides who may connect now."""

    def __init__(
        self, burst_s: float = 10.0, longest_s: float = 1.0, most: int = MAX_ADDRESSES
    ) -> None:
        """``longest_s``: how long a refused connection stays open, at most. ``most``: meters."""
        self._burst_s = burst_s
        self._longest_s = longest_s
        self._most = most
        self._table = QuotaTable({})
        self._meters: dict[str, Meter] = {}
        self._late: Meter | None = None
        self.is_active = False
        self.refused = 0

    def __len__(self) -> int:
        return len(self._meters)

    def set_quotas(self, quotas: Quotas) -> None:
        """Put other quotas in force."""
        self._table = QuotaTable(quotas)
        self.is_active = self._table.has_connection_rates
        if not self.is_active:
            self._meters.clear()
            self._late = None

    def admit(self, host: str, now: float) -> float:
        """0.0: the address may connect; else the seconds after which to close its connection."""
        if not self.is_active:
            return 0.0
        ip = normal_ip(host)
        bound = self._table.connection_rate(ip)
        if bound is None:
            return 0.0
        meter = self._meter(ip, bound, now)
        owes = meter.owes_s(now)
        if owes > 0.0:
            self.refused += 1
            return min(owes, self._longest_s)
        meter.charge(1, now)
        return 0.0

    def let_go_rested(self, now: float) -> None:
        """Let go of what nobody has used for a while."""
        for ip in [ip for ip, meter in self._meters.items() if meter.is_rested(now)]:
            del self._meters[ip]
        if len(self._meters) < self._most:
            self._late = None

    def _meter(self, ip: str, bound: float, now: float) -> Meter:
        meter = self._meters.get(ip)
        if meter is None:
            if len(self._meters) < self._most:
                meter = self._meters[ip] = Meter(bound, self._burst_s)
            else:  # all that came too late share one
                meter = self._late = self._late or Meter(bound, self._burst_s)
        meter.set_bound(bound, now)
        return meter


def normal_ip(host: str) -> str:
    """An address in its one normal form: IPv4 also where it came in one of IPv6.

    What is no address is returned as it is.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(address if mapped is None else mapped)
