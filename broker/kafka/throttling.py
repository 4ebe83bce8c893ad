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
from qbus.wire.declare import Struct as Message
from qbus.wire.declare import fields
from qbus.wire.messages.fetch import FetchResponse

from ..net.connection import HoldRequest
from ..net.peer import Peer
from ..net.transport import Part
from ..quotas import UNLIMITED, ClientQuotas, ConnectionQuotas, Meter

LONGEST_HOLD_S: Final = 30.0
"""For how much of a debt a new connection's produce stands in line; for more it waits to do so."""

LONGEST_HOLD_FOR_TIME_S: Final = 10.0
"""How long a request waits, at most, for time that others of its quota use up."""

_PREFIX: Final = 4  # the length of a frame, which counts as well
_MS: Final = 1000.0
_PERCENT: Final = 100.0
_INT32: Final = Struct(">i")
_HEADER: Final = Struct(">hhi")
_BUFFERS: Final = (bytes, bytearray, memoryview)

_PRODUCE: Final = ApiKey.PRODUCE.value
_FETCH: Final = ApiKey.FETCH.value
_SHARE_FETCH: Final = ApiKey.SHARE_FETCH.value
_FETCHES: Final = (_FETCH, _SHARE_FETCH)

# Where the answers of the lean way have their throttle time: produced's before its last tags, the
# others' behind their length, correlation id and tags.
_PRODUCED_THROTTLE: Final = -5
_HEAD_THROTTLE: Final = 9
_LARGE: Final = 64 * 1024
"""Bytes of an answer that is not written once more for its throttle time."""

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


def admit(
    quotas: ClientQuotas, peer: Peer, frame: memoryview, key: int, now: float
) -> ConnectionQuotas | None:
    """Count a request that comes; return what its answer counts against, None: nothing.

    key: of the request's API. now: in seconds of ``perf_counter``, as all times here.

    Raises:
        HoldRequest: it has to wait, for the quota is overdrawn and the connection new.
        WireError: it has no header.
    """
    of = quotas.of(peer, frame, now)
    if of.is_unlimited or (key > _FETCH and key in _UNCOUNTED):
        return None
    request = of.request
    if request is not None and (key <= _FETCH or key not in _HEARTBEATS):
        _wait_for_time(of, request, now)
    of.throttle_s = 0.0
    if key == _PRODUCE:
        if of.produce is not None:
            _charge_produce(of, of.produce, peer, len(frame) + _PREFIX, now)
        return of if request is not None or of.throttle_s > 0.0 else None
    if key == _FETCH:
        return of if request is not None or of.fetch is not None else None
    if key == _SHARE_FETCH and of.fetch is not None and of.fetch.owes_s(now) > 0.0:
        # It brings acknowledgements, too, so it cannot be answered empty.
        raise HoldRequest(min(of.fetch.owes_s(now), LONGEST_HOLD_S))
    return of


def _wait_for_time(of: ConnectionQuotas, request: Meter, now: float) -> None:
    """Hold a request while others have used up the time that its sender shares with them."""
    owes_s = request.owes_s(now)
    if owes_s > 0.0:
        if of.held_since == 0.0:
            of.held_since = now
        if now - of.held_since < LONGEST_HOLD_FOR_TIME_S:
            raise HoldRequest(owes_s)
    of.held_since = 0.0


def _charge_produce(of: ConnectionQuotas, meter: Meter, peer: Peer, size: int, now: float) -> None:
    """Count a produce request of so many bytes, and slow its client down."""
    if of.is_prepaid:
        of.is_prepaid = False
        of.is_produce_known = True
        throttle_s = meter.owes_s(now)
    else:
        if not of.is_produce_known:
            _wait_in_line(of, meter, size, now)
            of.is_produce_known = True
        throttle_s = meter.charge(size, now)
    if throttle_s > 0.0:
        of.throttle_s = throttle_s
        of.quotas.produce.count_throttled(throttle_s)
        peer.mute(throttle_s)


def _wait_in_line(of: ConnectionQuotas, meter: Meter, size: int, now: float) -> None:
    """Hold the first produce of a connection while the quota is overdrawn."""
    owes_s = meter.owes_s(now)
    if owes_s > LONGEST_HOLD_S:
        raise HoldRequest(owes_s - LONGEST_HOLD_S)
    if owes_s > 0.0:
        of.is_prepaid = True  # which keeps its place in the line
        meter.charge(size, now)
        of.quotas.produce.count_throttled(owes_s)
        raise HoldRequest(owes_s)


def settle_lean(
    of: ConnectionQuotas,
    peer: Peer,
    key: int,
    frame: memoryview,
    parts: list[Part],
    started: float,
    now: float,
) -> list[Part]:
    """Slow the client down, if it has used too much, and tell it in an answer of the lean way.

    That is one that was there at once: the request came at ``started``, as ``frame``. The commonest
    requests are no more than this and :func:`admit`: what others need is a :class:`Charge`.
    """
    spent_s = now - started
    throttle_s = of.throttle_s - spent_s
    fetch = of.fetch
    if fetch is not None and key == _FETCH:
        owes_s = fetch.owes_s(now)
        if owes_s > 0.0:
            close_regions(parts)
            owes_s = _limit_fetch(of, owes_s)
            _, version, correlation_id = _HEADER.unpack_from(frame)
            empty = FetchResponse(throttle_time_ms=_slow_down(of, peer, owes_s, spent_s, now))
            return encode_response(key, version, correlation_id, empty)
        throttle_s = _charge_fetch(of, fetch, parts, now)
    throttle_ms = _slow_down(of, peer, throttle_s, spent_s, now)
    return _with_throttle(key, parts, throttle_ms) if throttle_ms else parts


def _charge_fetch(of: ConnectionQuotas, meter: Meter, parts: list[Part], now: float) -> float:
    """Count what is fetched; return how long its client is slowed down, in seconds."""
    size = 0
    for part in parts:
        size += len(part)
    owes_s = meter.charge(size, now)
    return _limit_fetch(of, owes_s) if owes_s > 0.0 else 0.0


def _limit_fetch(of: ConnectionQuotas, owes_s: float) -> float:
    """How long a consumer is slowed down for what it owes, in seconds; it is noted."""
    # What takes longer is still owed then; the consumer's heartbeats must not wait so long.
    seconds = min(owes_s, of.quotas.burst_s)
    of.quotas.fetch.count_throttled(seconds)
    return seconds


def _slow_down(
    of: ConnectionQuotas, peer: Peer, throttle_s: float, spent_s: float, now: float
) -> int:
    """Count the time that was spent, and mute the connection as long as any quota asks for.

    Return that in milliseconds. throttle_s: what quotas but that of time ask for.
    """
    request = of.request
    if request is not None:
        owes_s = request.charge(spent_s * _PERCENT, now)
        if owes_s > 0.0:
            longest_s = of.quotas.window_s
            owes_s = min(owes_s, longest_s)
            request.limit_debt(longest_s, now)
            of.quotas.request.count_throttled(owes_s)
            throttle_s = max(throttle_s, owes_s)
    if throttle_s <= 0.0:
        return 0
    peer.mute(throttle_s)
    return min(int(throttle_s * _MS) + 1, UNLIMITED)


class Charge:
    """What one request is counted for, until it is answered, where that is not at once."""

    __slots__ = (
        "_is_exempt",
        "_mutation_s",
        "_of",
        "_peer",
        "_resumed_at",
        "_spent_s",
        "_until",
    )

    def __init__(self, of: ConnectionQuotas, peer: Peer, now: float) -> None:
        """``of``: as :func:`admit` returned it for this request, which came ``now``."""
        self._of = of
        self._peer = peer
        self._until = now + of.throttle_s
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
        return self._of.fetch_limit(self._resumed_at)

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
        fetch = self._of.fetch
        if fetch is not None and key in _FETCHES:
            owes_s = fetch.owes_s(now) if key == _FETCH else 0.0
            if owes_s > 0.0:
                owes_s = _limit_fetch(self._of, owes_s)
                close_regions(parts)
                response = FetchResponse()
            else:
                owes_s = _charge_fetch(self._of, fetch, parts, now)
            self._until = max(self._until, now + owes_s)
        throttle_ms = self._finish(now)
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            head = parts[0]
            if isinstance(head, bytearray) and len(head) > _LARGE and key not in _FETCHES:
                _tell_in_place(head, version, response, throttle_ms)
                return parts
            response.throttle_time_ms = throttle_ms
            return encode_response(key, version, correlation_id, response)
        return parts

    def settle_delayed(self, key: int, parts: list[Part], now: float) -> list[Part]:
        """The same for an answer of the lean way that has just come about."""
        self._resumed_at = now
        throttle_ms = self._finish(now)
        return _with_throttle(key, parts, throttle_ms) if throttle_ms else parts

    def settle_silent(self) -> None:
        """Slow the client down, if it has used too much; it wants no answer."""
        if not self._is_exempt:
            self._finish(perf_counter())

    def _finish(self, now: float) -> int:
        """Mute the connection as long as any quota asks for; return that in milliseconds."""
        of, throttle_s = self._of, self._until - now
        if self._mutation_s > 0.0:
            of.quotas.mutation.count_throttled(self._mutation_s)
            throttle_s = max(throttle_s, self._mutation_s)
        spent_s = self._spent_s + now - self._resumed_at
        return _slow_down(of, self._peer, throttle_s, spent_s, now)


def _with_throttle(key: int, parts: list[Part], throttle_ms: int) -> list[Part]:
    """A lean answer with its throttle time."""
    head = parts[0]
    assert isinstance(head, bytes)
    at = len(head) + _PRODUCED_THROTTLE if key == _PRODUCE else _HEAD_THROTTLE
    told = head[:at] + _INT32.pack(throttle_ms) + head[at + _INT32.size :]
    return [told, *parts[1:]]


def _tell_in_place(head: bytearray, version: int, response: Any, throttle_ms: int) -> None:
    """Write a throttle time into an answer that takes too long to be written twice.

    Where it is not the first field it is left out: the connection is muted all the same.
    """
    kind: type[Message] = type(response)
    first = next(field for field in fields(kind) if version in field.versions)
    if first.name == "throttle_time_ms":
        is_flexible = version >= kind.first_flexible
        _INT32.pack_into(head, _HEAD_THROTTLE if is_flexible else _HEAD_THROTTLE - 1, throttle_ms)


def close_regions(parts: list[Part]) -> None:
    """Let go of the files of an answer that is not sent."""
    for part in parts:
        if not isinstance(part, _BUFFERS):
            part.close()
