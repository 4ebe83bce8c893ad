"""The quotas of clients in force: who shares what, and what each connection has to count against.

One meter holds for all connections of those that share a quota. A connection remembers its meters,
so that a request costs a comparison of its client id, and looks them up anew when quotas, its
client id or its principal have changed.

The number of meters is bounded, since clients can call themselves anything. Meters that are as new
are let go after a while; if there are too many in use, whoever comes then shares one with all
others of its kind that came too late.

On a listener that authenticates nobody, everybody is the user ANONYMOUS and may take any client id:
only quotas of that user, and of addresses, hold there.
"""

import logging
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, NamedTuple

from qbus.errors import WireError
from qbus.metadata.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from qbus.wire.lean import has_at

from ..net.peer import Peer, Principal
from .meter import Meter
from .resolution import Quotas, QuotaTable, Sharers

_log = logging.getLogger(__name__)

MAX_METERS: Final = 10_000
"""How many meters of one kind there may be."""

UNLIMITED: Final = 2**31 - 1
"""As many bytes as an answer may have."""

_WARNING_INTERVAL_S: Final = 60.0

_CLIENT_ID_AT: Final = 8
_LENGTH: Final = Struct(">h")
_LONGEST: Final = 32767  # bytes of a client id


class Windows(NamedTuple):
    """Over what times quotas are averaged: ``number`` windows of ``size_s`` seconds (Kafka's).

    ``mutations_s`` is as long as both together, for changes of topics.
    """

    number: int = 11
    size_s: float = 1.0
    mutations_s: float = 11.0

    @property
    def burst_s(self) -> float:
        """How many seconds' worth may be used at once, after a rest."""
        return max(self.number - 1, 1) * self.size_s


class Meters:
    """The meters of one kind of quota, by who shares them."""

    def __init__(self, kind: str, burst_s: float, most: int = MAX_METERS) -> None:
        self.kind = kind
        self.throttled = 0
        self.throttled_s = 0.0
        self._burst_s = burst_s
        self._most = most
        self._meters: dict[Sharers, Meter] = {}
        self._late: Meter | None = None
        self._next_warning_at = 0.0

    def __len__(self) -> int:
        return len(self._meters)

    def get(self, sharers: Sharers, bound: float, now: float) -> Meter:
        """The meter of those who share a quota, made if there is none."""
        meter = self._meters.get(sharers)
        if meter is not None:
            meter.set_bound(bound, now)
            return meter
        if len(self._meters) >= self._most:
            return self._get_late(bound, now)
        meter = self._meters[sharers] = Meter(bound, self._burst_s)
        return meter

    def _get_late(self, bound: float, now: float) -> Meter:
        if now >= self._next_warning_at:
            self._next_warning_at = now + _WARNING_INTERVAL_S
            _log.warning(
                "more than %d users and clients use %s at once: those that come now share one "
                "quota; set one for their user, who may take any number of client ids",
                self._most,
                self.kind,
            )
        if self._late is None:
            self._late = Meter(bound, self._burst_s)
        self._late.set_bound(bound, now)
        return self._late

    def let_go_rested(self, now: float) -> int:
        """Let go of the meters that are as new; return how many."""
        rested = [key for key, meter in self._meters.items() if meter.is_rested(now)]
        for key in rested:
            del self._meters[key]
        if len(self._meters) < self._most:
            self._late = None
        return len(rested)

    def count_throttled(self, seconds: float) -> None:
        """Note that somebody is slowed down, for the metrics."""
        self.throttled += 1
        self.throttled_s += seconds

    def fastest(self, most: int, now: float) -> list[tuple[Sharers, float]]:
        """Who uses most, with what they use a second."""
        rates = ((sharers, meter.rate(now)) for sharers, meter in list(self._meters.items()))
        used = [one for one in rates if one[1] > 0]
        return sorted(used, key=lambda one: -one[1])[:most]


class ConnectionQuotas:
    """What the requests of one connection count against, while nothing changes.

    ``quotas``: all that there are.
    ``client_field`` is the client id as it stands in requests: its length and its bytes.
    ``is_unlimited``: there is nothing to count.
    ``is_produce_known``: a produce of this connection was let through before.
    ``is_prepaid``: the produce that waits in the connection was counted when it came.
    ``held_since``: since when a request waits for the time that others use up; 0.0: none does.
    ``throttle_s``: how long the request that came last slows its client down from then on, so far.
    """

    __slots__ = (
        "client_field",
        "fetch",
        "generation",
        "held_since",
        "is_prepaid",
        "is_produce_known",
        "is_unlimited",
        "mutation",
        "principal",
        "produce",
        "quotas",
        "request",
        "throttle_s",
    )

    def __init__(
        self,
        quotas: "ClientQuotas",
        principal: Principal,
        client_field: bytes,
        generation: int,
        meters: "list[Meter | None]",
    ) -> None:
        self.quotas = quotas
        self.principal = principal
        self.client_field = client_field
        self.generation = generation
        self.produce, self.fetch, self.request, self.mutation = meters
        self.is_unlimited = not any(meters)
        self.is_produce_known = False
        self.is_prepaid = False
        self.held_since = 0.0
        self.throttle_s = 0.0

    def fetch_limit(self, now: float) -> int:
        """How many bytes of records a fetch may bring now, besides its first batch."""
        meter = self.fetch
        if meter is None:
            return UNLIMITED
        limit = meter.bound * self.quotas.window_s
        credit = meter.credit(now)
        return int(max(limit, credit)) + 1


class ClientQuotas:
    """All quotas of clients, and who has used how much of them.

    ``is_active``: any user or client has a quota; while it is false, nothing has to be counted.
    ``window_s`` is one window, ``burst_s`` how many seconds' worth may be used at once.
    """

    def __init__(
        self,
        windows: Windows | None = None,
        *,
        is_exempt: Callable[[Principal], bool] | None = None,
        most: int = MAX_METERS,
    ) -> None:
        """``is_exempt``: whose requests are not counted: other brokers'. ``most``: of meters."""
        windows = windows or Windows()
        burst_s = windows.burst_s
        self.window_s = windows.size_s
        self.burst_s = burst_s
        self.is_active = False
        self._is_exempt = is_exempt
        self._table = QuotaTable({})
        self._ignores_client_ids = True
        self._generation = 0
        self.produce = Meters(PRODUCER_BYTE_RATE, burst_s, most)
        self.fetch = Meters(CONSUMER_BYTE_RATE, burst_s, most)
        self.request = Meters(REQUEST_PERCENTAGE, burst_s, most)
        self.mutation = Meters(CONTROLLER_MUTATION_RATE, windows.mutations_s, most)

    @property
    def kinds(self) -> tuple[Meters, ...]:
        """The meters by kind: produce, fetch, request and mutation."""
        return self.produce, self.fetch, self.request, self.mutation

    def set_quotas(self, quotas: Quotas) -> None:
        """Put other quotas in force."""
        self._table = QuotaTable(quotas)
        self._generation += 1
        self._ignores_client_ids = not self._table.has_client_ids
        self.is_active = self._table.has_client_quotas

    def let_go_rested(self, now: float) -> None:
        """Let go of what nobody has used for a while."""
        if sum(kind.let_go_rested(now) for kind in self.kinds):
            self._generation += 1  # connections that still know such a meter look again

    def of(self, peer: Peer, frame: memoryview, now: float) -> ConnectionQuotas:
        """What a request on ``peer`` counts against; the client id is read from its header.

        Raises:
            WireError: it has none.
        """
        known = peer.quota
        if (
            isinstance(known, ConnectionQuotas)
            and known.generation == self._generation
            and known.principal is peer.principal
            and (self._ignores_client_ids or has_at(frame, _CLIENT_ID_AT, known.client_field))
        ):
            return known
        found = self._look_up(peer.principal, _client_field(frame), now)
        if isinstance(known, ConnectionQuotas) and known.produce is found.produce:
            found.is_produce_known = known.is_produce_known
            found.is_prepaid = known.is_prepaid
        peer.quota = found
        return found

    def of_client(self, peer: Peer, client_id: str, now: float) -> ConnectionQuotas:
        """As :meth:`of`, for a protocol where a connection has one client id, which is known."""
        known = peer.quota
        encoded = client_id.encode("utf-8", "replace")[:_LONGEST]
        field = _LENGTH.pack(len(encoded)) + encoded
        if (
            isinstance(known, ConnectionQuotas)
            and known.generation == self._generation
            and known.principal is peer.principal
            and known.client_field == field
        ):
            return known
        found = self._look_up(peer.principal, field, now)
        peer.quota = found
        return found

    def _look_up(self, principal: Principal, client_field: bytes, now: float) -> ConnectionQuotas:
        meters: list[Meter | None] = [None] * len(self.kinds)
        if self._is_exempt is None or not self._is_exempt(principal):
            client_id = client_field[2:].decode("utf-8", "replace")
            for place, kind in enumerate(self.kinds):
                applied = self._table.applied(kind.kind, principal.name, client_id)
                if applied is not None:
                    meters[place] = kind.get(applied.sharers, applied.bound, now)
        return ConnectionQuotas(self, principal, client_field, self._generation, meters)


def _client_field(frame: memoryview) -> bytes:
    """The client id as it stands in a request: its length, negative for none, and its bytes."""
    begin = _CLIENT_ID_AT + _LENGTH.size
    if len(frame) < begin:
        raise WireError("a request ends within its header")
    size: int = _LENGTH.unpack_from(frame, _CLIENT_ID_AT)[0]
    return bytes(frame[_CLIENT_ID_AT : begin + max(size, 0)])


def labels(sharers: Sharers) -> Iterable[str]:
    """User and client id as labels of a metric; empty: not part of it."""
    return sharers.user or "", sharers.client_id or ""
