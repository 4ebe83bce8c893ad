"""What quotas do to requests of Kafka's protocol: count them, and slow their clients down.

A request above a quota is answered, with the time that its client is slowed down for, and then the
connection is muted for that time (KIP-219): clients that heed the time and those that do not use
the same. Every kind of quota has its way to count:

- produce: the bytes of the request, when it comes. The first request of a connection waits unread
  while its quota is overdrawn: else each new connection would have one request for nothing.
- fetch: the bytes of the answer. While the quota is overdrawn the answer is empty, as Kafka's; else
  it brings at most what may be used at once, or what may be used in one window.
- request time (KIP-124): the time that the event loop works at a request, in percent of one core.
  The client is slowed down for at most one window, so that heartbeats go on. Requests of other
  connections that share the quota wait for it to be paid, for some seconds at most: else many
  connections would each have a request for nothing.
- changes of topics (KIP-599): partitions created and deleted. Versions that know of it are refused
  with THROTTLING_QUOTA_EXCEEDED while the quota is overdrawn; earlier ones are only slowed down.

Not counted are what brokers ask each other, and what comes before authentication.
"""

from struct import Struct
from time import perf_counter
from typing import Any, Final

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey, RequestHeader, encode_response
from qbus.wire.messages.fetch import FetchResponse

from ..net.connection import HoldRequest
from ..net.peer import Peer
from ..net.transport import Part
from ..quotas import ClientQuotas, ConnectionQuotas, Meter

LONGEST_HOLD_S: Final = 30.0
"""For how much of a debt a new connection's produce stands in line; for more it waits to do so."""

LONGEST_HOLD_FOR_TIME_S: Final = 10.0
"""How long a request waits, at most, for time that others of its quota use up."""

UNLIMITED: Final = 2**31 - 1

_PREFIX: Final = 4  # the length of a frame, which counts as well
_MS: Final = 1000.0
_PERCENT: Final = 100.0
_INT32: Final = Struct(">i")
_HEADER: Final = Struct(">hhi")
_BUFFERS: Final = (bytes, bytearray, memoryview)

_PRODUCE: Final = ApiKey.PRODUCE.value
_FETCH: Final = ApiKey.FETCH.value
_SHARE_FETCH: Final = ApiKey.SHARE_FETCH.value

# Where the answers of the lean way have their throttle time: produced's before its last tags,
# fetched's behind its length, correlation id and tags.
_PRODUCED_THROTTLE: Final = -5
_FETCHED_THROTTLE: Final = 9

# What keeps a member in its group: it is counted, and never waits for others.
_HEARTBEATS: Final = frozenset(
    {
        ApiKey.HEARTBEAT.value,
        ApiKey.CONSUMER_GROUP_HEARTBEAT.value,
        ApiKey.SHARE_GROUP_HEARTBEAT.value,
    }
)
_UNCOUNTED: Final = frozenset(
    {
        17,  # SaslHandshake
        36,  # SaslAuthenticate
        ApiKey.WRITE_TXN_MARKERS.value,
        ApiKey.QUEUE_OFFSETS.value,
        ApiKey.END_GROUP_TRANSACTION.value,
    }
)


def begin_charge(
    quotas: ClientQuotas, peer: Peer, frame: memoryview, now: float
) -> "Charge | None":
    """Count a request that comes; None: there is nothing more to count.

    now: in seconds of ``perf_counter``, as all times here.

    Raises:
        HoldRequest: it has to wait, for the quota is overdrawn and the connection new.
        WireError: it has no header.
    """
    of = quotas.of(peer, frame, now)
    key = frame[0] << 8 | frame[1]
    if of.is_unlimited or (key > _FETCH and key in _UNCOUNTED):
        return None
    if of.request is not None and key not in _HEARTBEATS:
        _wait_for_time(of, of.request, now)
    if key == _PRODUCE:
        return _begin_produce(quotas, of, peer, len(frame) + _PREFIX, now)
    if key == _FETCH and of.fetch is None and of.request is None:
        return None
    if key == _SHARE_FETCH and of.fetch is not None and of.fetch.owes_s(now) > 0.0:
        # It brings acknowledgements, too, so it cannot be answered empty.
        raise HoldRequest(min(of.fetch.owes_s(now), LONGEST_HOLD_S))
    return Charge(quotas, of, peer, key, 0.0, now)


def _begin_produce(
    quotas: ClientQuotas, of: ConnectionQuotas, peer: Peer, size: int, now: float
) -> "Charge | None":
    throttle_s = 0.0
    if of.produce is not None:
        throttle_s = _charge_produce(quotas, of, of.produce, size, now)
        if throttle_s > 0.0:
            quotas.produce.count_throttled(throttle_s)
            peer.mute(throttle_s)
    if throttle_s == 0.0 and of.request is None:
        return None
    return Charge(quotas, of, peer, _PRODUCE, throttle_s, now)


def _wait_for_time(of: ConnectionQuotas, request: Meter, now: float) -> None:
    """Hold a request while others have used up the time that its sender shares with them."""
    owes_s = request.owes_s(now)
    if owes_s > 0.0:
        if of.held_since == 0.0:
            of.held_since = now
        if now - of.held_since < LONGEST_HOLD_FOR_TIME_S:
            raise HoldRequest(owes_s)
    of.held_since = 0.0


def _charge_produce(
    quotas: ClientQuotas, of: ConnectionQuotas, meter: Meter, size: int, now: float
) -> float:
    """Count a produce request; return how long its client is slowed down, in seconds."""
    if of.is_prepaid:
        of.is_prepaid = False
        of.is_produce_known = True
        return meter.owes_s(now)
    if not of.is_produce_known:
        owes_s = meter.owes_s(now)
        if owes_s > LONGEST_HOLD_S:
            raise HoldRequest(owes_s - LONGEST_HOLD_S)
        if owes_s > 0.0:
            of.is_prepaid = True  # which keeps its place in the line
            meter.charge(size, now)
            quotas.produce.count_throttled(owes_s)
            raise HoldRequest(owes_s)
        of.is_produce_known = True
    return meter.charge(size, now)


class Charge:
    """What one request is counted for, from when it comes until it is answered."""

    __slots__ = (
        "_is_exempt",
        "_key",
        "_mutation_s",
        "_of",
        "_peer",
        "_quotas",
        "_resumed_at",
        "_spent_s",
        "_until",
    )

    def __init__(
        self,
        quotas: ClientQuotas,
        of: ConnectionQuotas,
        peer: Peer,
        key: int,
        throttle_s: float,
        now: float,
    ) -> None:
        self._quotas = quotas
        self._of = of
        self._peer = peer
        self._key = key
        self._until = now + throttle_s
        self._mutation_s = 0.0
        self._resumed_at = now
        self._spent_s = 0.0
        self._is_exempt = False

    def exempt(self) -> None:
        """Do not count the request: another broker sent it, and was found to be one."""
        self._is_exempt = True

    @property
    def fetch_limit(self) -> int:
        """How many bytes of records a fetch may bring, besides its first batch."""
        meter = self._of.fetch
        if meter is None:
            return UNLIMITED
        limit = meter.bound * self._quotas.window_s
        credit = meter.credit(self._resumed_at)
        return int(max(limit, credit)) + 1

    # Time

    def pause(self) -> None:
        """Stop the clock: the request waits for something."""
        self._spent_s += perf_counter() - self._resumed_at

    def resume(self) -> None:
        """Let the clock run again."""
        self._resumed_at = perf_counter()

    # Changes of topics

    def change(self, partitions: int, *, strict: bool) -> None:
        """Count the creation or deletion of so many partitions.

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED, in a ``strict`` request while it is overdrawn.
        """
        meter = self._of.mutation
        if meter is None:
            return
        now = perf_counter()
        if not strict:
            self._mutation_s = max(self._mutation_s, meter.charge(partitions, now))
            return
        owes_s = meter.owes_s(now)
        if owes_s > 0.0:
            self._mutation_s = max(self._mutation_s, owes_s)
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"the quota of {meter.bound:g} partitions created or deleted a second is used up;"
                f" try again in {owes_s:.3f} s",
            )
        meter.charge(partitions, now)

    def change_back(self, partitions: int) -> None:
        """Do not count a change that did not come about."""
        if self._of.mutation is not None:
            self._of.mutation.refund(partitions)

    # Answers

    def settle(self, header: RequestHeader, response: Any, parts: list[Part]) -> list[Part]:
        """Slow the client down, if it has used too much, and tell it in its answer.

        parts: the answer as encoded, without that.
        """
        if self._is_exempt:
            return parts
        now = perf_counter()
        key, version, correlation_id, _ = header
        if key == _FETCH and self._of.fetch is not None:
            owes_s = self._of.fetch.owes_s(now)
            if owes_s > 0.0:
                self._slow_down_fetch(owes_s, now)
                close_regions(parts)
                response = FetchResponse()
            else:
                self._charge_fetch(self._of.fetch, parts, now)
        elif key == _SHARE_FETCH and self._of.fetch is not None:
            self._charge_fetch(self._of.fetch, parts, now)
        throttle_ms = self._finish(now)
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
            return encode_response(key, version, correlation_id, response)
        return parts

    def settle_lean(self, frame: memoryview | None, parts: list[Part]) -> list[Part]:
        """The same for an answer of the lean way; a fetch's with the ``frame`` that asks for it."""
        now = perf_counter()
        fetch = self._of.fetch
        if frame is None or fetch is None or self._key != _FETCH:
            throttle_ms = self._finish(now)
            return _with_throttle(self._key, parts, throttle_ms) if throttle_ms else parts
        owes_s = fetch.owes_s(now)
        if owes_s > 0.0:
            self._slow_down_fetch(owes_s, now)
            close_regions(parts)
            key, version, correlation_id = _HEADER.unpack_from(frame)
            empty = FetchResponse(throttle_time_ms=self._finish(now))
            return encode_response(key, version, correlation_id, empty)
        self._charge_fetch(fetch, parts, now)
        throttle_ms = self._finish(now)
        return _with_throttle(_FETCH, parts, throttle_ms) if throttle_ms else parts

    def settle_silent(self) -> None:
        """Slow the client down, if it has used too much; it wants no answer."""
        if not self._is_exempt:
            self._finish(perf_counter())

    def _charge_fetch(self, meter: Meter, parts: list[Part], now: float) -> None:
        size = 0
        for part in parts:
            size += len(part)
        owes_s = meter.charge(size, now)
        if owes_s > 0.0:
            self._slow_down_fetch(owes_s, now)

    def _slow_down_fetch(self, seconds: float, now: float) -> None:
        # What takes longer is still owed then; the consumer's heartbeats must not wait so long.
        seconds = min(seconds, self._quotas.burst_s)
        self._quotas.fetch.count_throttled(seconds)
        self._until = max(self._until, now + seconds)

    def _finish(self, now: float) -> int:
        """Mute the connection as long as any quota asks for; return that in milliseconds."""
        quotas, request = self._quotas, self._of.request
        throttle_s = self._until - now
        if request is not None:
            spent_s = self._spent_s + now - self._resumed_at
            owes_s = request.charge(spent_s * _PERCENT, now)
            if owes_s > 0.0:
                longest_s = quotas.window_s
                owes_s = min(owes_s, longest_s)
                request.limit_debt(longest_s, now)
                quotas.request.count_throttled(owes_s)
                throttle_s = max(throttle_s, owes_s)
        if self._mutation_s > 0.0:
            quotas.mutation.count_throttled(self._mutation_s)
            throttle_s = max(throttle_s, self._mutation_s)
        if throttle_s <= 0.0:
            return 0
        self._peer.mute(throttle_s)
        return min(int(throttle_s * _MS) + 1, UNLIMITED)


def _with_throttle(key: int, parts: list[Part], throttle_ms: int) -> list[Part]:
    """A lean answer with its throttle time."""
    head = parts[0]
    assert isinstance(head, bytes)
    at = _FETCHED_THROTTLE if key == _FETCH else len(head) + _PRODUCED_THROTTLE
    told = head[:at] + _INT32.pack(throttle_ms) + head[at + _INT32.size :]
    return [told, *parts[1:]]


def close_regions(parts: list[Part]) -> None:
    """Let go of the files of an answer that is not sent."""
    for part in parts:
        if not isinstance(part, _BUFFERS):
            part.close()
