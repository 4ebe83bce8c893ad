"""How many connections a second there may be: of an address, of a listener, of a broker (KIP-612).

A connection above that is accepted and closed a little later, as Kafka does: a client that is
refused at once would only try again at once.
"""

from collections.abc import Callable
from ipaddress import ip_address
from time import perf_counter
from typing import Final

from .meter import Meter
from .resolution import Quotas, QuotaTable

MAX_ADDRESSES: Final = 100_000

NO_LIMIT: Final = 2**31 - 1
"""As ``max.connection.creation.rate``: any number."""

_LEAST_RATE: Final = 1e-9  # 0 is none at all


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
        self._of_broker = self.make_meter()
        self.is_active = False
        self.refused = 0

    def __len__(self) -> int:
        return len(self._meters)

    def make_meter(self) -> Meter:
        """A meter of connections, without its rate."""
        return Meter(NO_LIMIT, self._burst_s)

    @property
    def of_broker(self) -> Meter:
        """What counts the connections of all listeners."""
        return self._of_broker

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
            return self.refuse(owes)
        meter.charge(1, now)
        return 0.0

    def refuse(self, owes_s: float) -> float:
        """Count a connection that comes ``owes_s`` too early; when to close it, in seconds."""
        self.refused += 1
        return min(owes_s, self._longest_s)

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


class Admission:
    """Decides who may connect to one listener now."""

    def __init__(
        self,
        rates: ConnectionRates,
        of_listener: Callable[[], float],
        of_broker: Callable[[], float],
        now: Callable[[], float] = perf_counter,
    ) -> None:
        """The rates of the listener and of the whole broker may change; NO_LIMIT is none."""
        self._rates = rates
        self._limits = ((rates.make_meter(), of_listener), (rates.of_broker, of_broker))
        self._now = now

    def __call__(self, host: str) -> float:
        """As :meth:`ConnectionRates.admit`; whoever is refused counts against nothing."""
        now = self._now()
        limited = []
        for meter, read in self._limits:
            bound = read()
            if bound < NO_LIMIT:
                meter.set_bound(max(bound, _LEAST_RATE), now)
                owes = meter.owes_s(now)
                if owes > 0.0:
                    return self._rates.refuse(owes)
                limited.append(meter)
        wait = self._rates.admit(host, now)
        if wait == 0.0:
            for meter in limited:
                meter.charge(1, now)
        return wait


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
