"""What ShareFetch and ShareAcknowledge have in common: acknowledgements, and finding queues."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from qbus.config import ShareGroupConfig
from qbus.errors import ApiError, ErrorCode

from ..authorization import Operation
from ..authorization import topic as topic_resource
from ..partition.purgatory import Delayed
from ..queues import AckRange, AckType, GroupSettings
from ..share import group_settings
from .context import RequestContext

if TYPE_CHECKING:
    from ..metadata.cache import MetadataCache
    from ..partition.partition import Partition
    from ..partition.replica_manager import ReplicaManager
    from ..queues.queue import ShareQueue
    from ..queues.service import QueueService
    from .replica_sessions import ReplicaSessions

_log = logging.getLogger(__name__)

T = TypeVar("T")

_MOST_BATCHES: Final = 10_000  # no member may have more records of a partition at a time
_FIRST_WITH_RENEW: Final = 2
_BACKOFF: Final = -1
_MOST_SETTINGS: Final = 10_000


class GroupQueues:
    """Finds what share groups take of the partitions that this broker leads."""

    def __init__(
        self,
        replicas: "ReplicaManager[ReplicaSessions]",
        metadata: "MetadataCache",
        queues: "QueueService",
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._queues = queues
        # What the last request of each group went by, made once for each configuration.
        self._settings: dict[str, tuple[ShareGroupConfig, GroupSettings]] = {}

    def of(self, group: str, topic: str | bytes, index: int) -> "tuple[Partition, ShareQueue]":
        """A partition of the topic with this name or id, and what a group takes of it.

        Raises:
            ApiError: it does not exist, or is not led here.
        """
        partition = self._replicas.leader_of(topic, index)
        return partition, self._queue(partition, group)

    def check_topic(self, context: RequestContext, topic_id: bytes) -> None:
        """Check that a client may read a topic, before anything else is told of it.

        Raises:
            ApiError: TOPIC_AUTHORIZATION_FAILED. There may be no such topic; that is not said here.
        """
        if context.is_restricted:
            topic = self._metadata.topics_by_id.get(topic_id)
            if topic is not None:
                context.authorize(Operation.READ, topic_resource(topic.name))

    def known(self, group: str, topic: str | bytes, index: int) -> "ShareQueue | None":
        """The same, unless the partition knows nothing of the group: then None. Raises ApiError."""
        partition = self._replicas.leader_of(topic, index)
        is_known = group in self._queues.groups(partition)
        return self._queue(partition, group) if is_known else None

    def _queue(self, partition: "Partition", group: str) -> "ShareQueue":
        return self._queues.queue(partition, group, self._settings_of(group))

    def _settings_of(self, group: str) -> GroupSettings:
        config = self._metadata.group_config(group)
        known = self._settings.get(group)
        if known is None or known[0] is not config:
            if len(self._settings) >= _MOST_SETTINGS:
                self._settings.clear()
            known = self._settings[group] = config, group_settings(config)
        return known[1]


class Acknowledgement(Protocol):
    """An acknowledgement as it is on the wire, of either request."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]
    delay_ms: int
    result: bytes | None
    nack: bool


class Acknowledged(NamedTuple):
    """What is to be acknowledged of a partition: ranges, and jobs with their results."""

    ranges: list[AckRange]
    results: list[tuple[int, bytes]]


def read_acknowledgements(batches: Sequence[Acknowledgement], *, renews: bool) -> Acknowledged:
    """Check the acknowledgements of one partition, and join what is alike.

    ``renews``: whether locks may be renewed.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    if len(batches) > _MOST_BATCHES:
        raise _invalid(f"{len(batches)} batches for a partition, more than {_MOST_BATCHES}")
    ranges: list[AckRange] = []
    results: list[tuple[int, bytes]] = []
    end = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if not 0 <= first <= last or first <= end:
            raise _invalid(f"the offsets from {first} to {last} come behind {end}")
        end = last
        if len(types) not in {1, last - first + 1}:
            raise _invalid(f"{len(types)} types for the offsets from {first} to {last}")
        for kind in set(types):
            if not AckType.GAP <= kind <= AckType.RENEW:
                raise _invalid(f"there is no acknowledgement of type {kind}")
            if kind == AckType.RENEW and not renews:
                raise _invalid("locks are not to be renewed by this request, or in this group")
        if batch.result is not None:
            if first != last or types[0] != AckType.ACCEPT:
                raise _invalid("a result is that of one accepted record")
            results.append((first, bytes(batch.result)))
            continue
        ranges += _runs(batch)
    return Acknowledged(ranges, results)


def _runs(batch: Acknowledgement) -> Iterable[AckRange]:
    first, types = batch.first_offset, batch.acknowledge_types
    delay_ms, nack = max(batch.delay_ms, _BACKOFF), batch.nack
    if len(types) == 1:
        return [AckRange(first, batch.last_offset, types[0], delay_ms, nack)]
    runs = []
    start = 0
    for place in range(1, len(types) + 1):
        if place == len(types) or types[place] != types[start]:
            runs.append(AckRange(first + start, first + place - 1, types[start], delay_ms, nack))
            start = place
    return runs


def _invalid(what: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, what)


def renews(context: RequestContext, *, is_renew_ack: bool, allowed: bool) -> bool:
    """Whether a request may renew locks. ``allowed``: whether the group's configuration lets it."""
    return context.api_version >= _FIRST_WITH_RENEW and is_renew_ack and allowed


async def acknowledge(
    queues: GroupQueues,
    context: RequestContext,
    group: str,
    member: str,
    place: tuple[bytes, int],
    read: Acknowledged,
) -> None:
    """Acknowledge in one partition; returns when that is stored.

    Raises:
        ApiError: INVALID_RECORD_STATE, the member has not all of these records; MESSAGE_TOO_LARGE,
            a result is; the partition is not led here; or it cannot be stored.
    """
    queues.check_topic(context, place[0])
    partition, queue = queues.of(group, *place)
    if not read.results:
        await queue.acknowledge(member, read.ranges)
        return
    most = partition.log.config.max_message_bytes
    for offset, result in read.results:
        if len(result) > most:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the result of {offset} has {len(result)} bytes, more than max.message.bytes",
            )
    # All is looked at before anything is begun: it counts together or not at all.
    for offset, _ in read.results:
        _check_held(queue, member, offset)
    start = queue.start_offset  # what lies before it is passed over, as without results
    for one in read.ranges:
        if one.type != AckType.GAP:
            for offset in range(max(one.first, start), one.last + 1):
                _check_held(queue, member, offset)
    stored = [queue.acknowledge(member, read.ranges)] if read.ranges else []
    settled = [queue.settle(offset, result) for offset, result in read.results]
    if not all(outcome is not False for outcome in await asyncio.gather(*stored, *settled)):
        raise ApiError(ErrorCode.INVALID_RECORD_STATE, "a record was done already")


def _check_held(queue: "ShareQueue", member: str, offset: int) -> None:
    """Raises ApiError INVALID_RECORD_STATE."""
    if queue.state_of(offset).member != member:
        raise ApiError(
            ErrorCode.INVALID_RECORD_STATE, f"the record {offset} is not locked by {member}"
        )


def names(group: str | None, member: str | None) -> tuple[str, str]:
    """The names of a group and of its member.

    Raises:
        ApiError: INVALID_REQUEST, one is missing.
    """
    if not group:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    if not member:
        raise _invalid("the member has no id")
    return group, member


def failure(error: BaseException) -> ApiError:
    """What the client is told of a failure in one partition."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, OSError):
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    _log.error("a share group's request failed in a partition", exc_info=error)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says why")


def later(work: Coroutine[Any, Any, T]) -> Delayed[T]:
    """The outcome of ``work``, behind which later requests of the connection need not wait.

    Cancelled with the answer: the client is gone.
    """
    loop = asyncio.get_running_loop()
    delayed: Delayed[T] = Delayed(loop)
    task = loop.create_task(work)

    def finish(done: asyncio.Task[T]) -> None:
        if done.cancelled():
            delayed.cancel()
        elif (error := done.exception()) is None:
            delayed.answer(done.result())
        elif isinstance(error, Exception):
            delayed.fail(error)
        else:
            delayed.cancel()

    def stop(answer: asyncio.Future[T]) -> None:
        if answer.cancelled():
            task.cancel()

    task.add_done_callback(finish)
    delayed.add_done_callback(stop)
    return delayed
