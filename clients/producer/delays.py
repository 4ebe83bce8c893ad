"""Sending records to be delivered later, and orders about them (:mod:`qbus.delay`)."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Any, Final

from qbus.clock import Clock
from qbus.delay import CANCEL, DELAY, DELIVER_AT, RESCHEDULE, TTL, parse_duration
from qbus.errors import ApiError, ConfigError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

from ..errors import ClientClosed, check
from ..net.cluster import Cluster
from ..net.retry import retrying
from ..types import ConfigKind, Duration, Moment
from .lists import Headers

_log = logging.getLogger(__name__)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_ENABLED: Final = "qbus.delay.enable"
_KNOWN_FOR_S: Final = 60.0
_PATIENCE_S: Final = 3.0  # for a topic that was created just now


def delay_headers(
    deliver_at: Moment | None, delay: Duration | None, ttl: Duration | None
) -> tuple[tuple[str, bytes], ...]:
    """The headers that have a record delivered later.

    Raises TypeError or ValueError for what is no time, for both times, and for a ttl alone.
    """
    if deliver_at is not None:
        if delay is not None:
            raise ValueError("deliver_at and delay exclude each other")
        first = (DELIVER_AT, _moment(deliver_at))
    elif delay is not None:
        first = (DELAY, _duration("delay", delay))
    elif ttl is not None:
        raise ValueError("ttl is for records with deliver_at or delay")
    else:
        return ()
    return (first,) if ttl is None else (first, (TTL, _duration("ttl", ttl)))


def with_delays(
    headers: Sequence[Headers | None] | None,
    count: int,
    deliver_at: Moment | Sequence[Moment | None] | None,
    delay: Duration | Sequence[Duration | None] | None,
    ttl: Duration | None,
) -> Sequence[Headers | None] | None:
    """The headers of ``count`` records, with those that have them delivered later.

    Each of the times is one for all, or a sequence of one for each record (None: at once). Raises
    as :func:`delay_headers`.
    """
    if deliver_at is None and delay is None and ttl is None:
        return headers
    if _is_one_for_each(deliver_at) or _is_one_for_each(delay):
        moments = _one_for_each("deliver_at", deliver_at, count)
        delays = _one_for_each("delay", delay, count)
        added = [
            () if when is None and wait is None else delay_headers(when, wait, ttl)
            for when, wait in zip(moments, delays, strict=True)
        ]
    else:
        added = [delay_headers(deliver_at, delay, ttl)] * count  # type: ignore[arg-type]
    if headers is None:
        return added
    if len(headers) != count:
        raise ValueError(f"{len(headers)} headers for {count} values")
    return [(*(own or ()), *more) for own, more in zip(headers, added, strict=True)]


def cancel_headers(offset: int | None) -> Headers:
    """The header that cancels the record at ``offset``; None: all with the same key."""
    return [(CANCEL, b"key" if offset is None else _offset(offset))]


def reschedule_headers(offset: int, deliver_at: Moment | None, delay: Duration | None) -> Headers:
    """The headers that have the record at ``offset`` delivered at another time.

    Raises as :func:`delay_headers`.
    """
    if deliver_at is None and delay is None:
        raise ValueError("reschedule needs deliver_at or delay")
    return [(RESCHEDULE, _offset(offset)), *delay_headers(deliver_at, delay, None)]


def _is_one_for_each(times: Any) -> bool:
    return times is not None and not isinstance(times, datetime | timedelta | int | str | bytes)


def _one_for_each(what: str, times: Any, count: int) -> Sequence[Any]:
    if not _is_one_for_each(times):
        return [times] * count
    if not isinstance(times, Sequence):
        raise TypeError(f"{what} is one time, or a sequence of times, not {type(times).__name__}")
    if len(times) != count:
        raise ValueError(f"{len(times)} times of {what} for {count} values")
    return list(times)


def _moment(moment: Moment) -> bytes:
    if isinstance(moment, datetime):
        try:
            ms = -((_EPOCH - moment.astimezone(UTC)) // _MS)  # rounded up: never early
        except (OverflowError, ValueError) as error:
            raise ValueError(f"deliver_at {moment} cannot be told in UTC: {error}") from None
    else:
        ms = _whole("deliver_at", moment, "a datetime or milliseconds since 1970")
    if ms < 0:
        raise ValueError(f"deliver_at must not be before 1970: {moment}")
    return b"%d" % ms


def milliseconds_of(what: str, duration: Duration) -> int:
    """A duration in milliseconds, rounded up. ``what`` it is stands in errors.

    Raises ValueError and TypeError.
    """
    if isinstance(duration, str):
        return parse_duration(duration)
    if isinstance(duration, timedelta):
        ms = -(-duration // _MS)
    else:
        ms = _whole(what, duration, "a timedelta, milliseconds or a text such as 15m")
    if ms < 0:
        raise ValueError(f"{what} must not be negative: {duration}")
    return ms


def _duration(what: str, duration: Duration) -> bytes:
    ms = milliseconds_of(what, duration)
    return duration.encode() if isinstance(duration, str) else b"%d" % ms


def _offset(offset: int) -> bytes:
    number = _whole("an offset", offset, "an int")
    if number < 0:
        raise ValueError(f"an offset must not be negative: {offset}")
    return b"%d" % number


def _whole(what: str, number: Any, kinds: str) -> int:
    try:
        if isinstance(number, bool):
            raise TypeError
        return index(number)
    except TypeError:
        raise TypeError(f"{what} is {kinds}, not {type(number).__name__}") from None


class DelayingTopics:
    """Remembers which topics hold records back.

    The first send to a topic asks the brokers. Later sends rely on the remembered answer, even
    while no broker can be reached; each minute the question is repeated in the background.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopped = False
        # Only the loop writes it: another thread could bring back what was just removed.
        self._ask_again: dict[str, float] = {}  # when, of each topic that holds records back
        self._due: set[str] = set()  # topics that the loop was told to ask for again
        self._asking: dict[str, asyncio.Task[None]] = {}

    def is_known(self, topic: str) -> bool:
        """Whether the topic held records back by the last answer. Any thread may ask."""
        ask_again = self._ask_again.get(topic)
        if ask_again is None:
            return False
        if (
            ask_again <= self._clock.monotonic()
            and topic not in self._due
            and self._loop is not None
        ):
            self._due.add(topic)
            with contextlib.suppress(RuntimeError):  # the loop may be closed
                self._loop.call_soon_threadsafe(self._refresh, topic)
        return True

    async def check(self, topic: str) -> None:
        """Raise ConfigError for a topic that would deliver at once what is to be delayed.

        Or for one that does not exist: it is not created, for it would hold nothing back. A topic
        whose configuration one may not read is trusted. Raises ClientClosed after :meth:`stop`.
        """
        if self.is_known(topic):
            return
        if self._is_stopped:
            raise ClientClosed
        question = self._ask(topic)
        await asyncio.wait([question])
        if question.cancelled():  # by stop: nobody cancelled the caller
            raise ClientClosed
        question.result()

    def stop(self) -> None:
        """Ask no more; those who wait for an answer get ClientClosed."""
        self._is_stopped = True
        for task in self._asking.values():
            task.cancel()

    def _ask(self, topic: str) -> "asyncio.Task[None]":
        """The question under way; all who want to know wait for one answer."""
        task = self._asking.get(topic)
        if task is None:
            self._loop = asyncio.get_running_loop()
            task = self._asking[topic] = self._loop.create_task(self._find_out(topic))
            task.add_done_callback(lambda done: self._answered(topic, done))
        return task

    def _answered(self, topic: str, task: "asyncio.Task[None]") -> None:
        del self._asking[topic]
        if not task.cancelled():
            task.exception()  # whoever waits for it raises it

    def _refresh(self, topic: str) -> None:
        self._due.discard(topic)
        now = self._clock.monotonic()
        ask_again = self._ask_again.get(topic)
        if self._is_stopped or ask_again is None or ask_again > now:
            return
        self._ask_again[topic] = now + _KNOWN_FOR_S
        if topic not in self._asking:
            self._ask(topic).add_done_callback(_say)

    async def _find_out(self, topic: str) -> None:
        try:
            is_delaying = await self._is_delaying(topic)
        except ConfigError:
            self._ask_again.pop(topic, None)
            raise
        if not is_delaying:
            self._ask_again.pop(topic, None)
            raise ConfigError(f"topic {topic} holds nothing back: {_ENABLED} is not true")
        self._ask_again[topic] = self._clock.monotonic() + _KNOWN_FOR_S

    async def _is_delaying(self, topic: str) -> bool:
        resource = DescribeConfigsResource(
            resource_type=ConfigKind.TOPIC, resource_name=topic, configuration_keys=[_ENABLED]
        )
        request = DescribeConfigsRequest(resources=[resource])
        created_before = self._clock.monotonic() + _PATIENCE_S

        async def attempt() -> dict[str, str | None]:
            response: DescribeConfigsResponse = await self._cluster.ask_any(
                ApiKey.DESCRIBE_CONFIGS, request
            )
            for result in response.results:
                if (
                    result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    and self._clock.monotonic() >= created_before
                ):
                    raise ConfigError(f"topic {topic} does not exist, and would hold nothing back")
                check(result.error_code, result.error_message, of=f"topic {topic}")
            return {one.name: one.value for result in response.results for one in result.configs}

        try:
            config = await retrying(self._cluster, f"topic {topic}", attempt)
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return True
        return config.get(_ENABLED) == "true"


def _say(task: "asyncio.Task[None]") -> None:
    """Tell what a question in the background found out, if that is news."""
    error = None if task.cancelled() else task.exception()
    if isinstance(error, ConfigError):
        _log.warning("%s: what is to be delayed is refused from now on", error)
    elif error is not None:
        _log.debug("whether topics hold records back could not be asked again: %s", error)
