"""OffsetFetch (key 9): where groups have got to. No commit is offset -1, and no error.

Null topics mean all, from version 2 on, which also has one error for the whole group; in version 1
each partition tells it. Version 5 brings leader epochs. Version 7 may wish for stable offsets only:
a partition for which an open transaction brings another offset is answered UNSTABLE_OFFSET_COMMIT
(KIP-447). From version 8 on many groups are asked for at once (KIP-709). Version 9 tells which
member asks, in which epoch (KIP-848): UNKNOWN_MEMBER_ID and STALE_MEMBER_EPOCH refuse
it. Version 10 names topics by id.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ZERO_UUID
from qbus.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

from ...authorization import Operation
from ...authorization import group as group_resource
from ...authorization import topic as topic_resource
from ...group import Offset, Offsets, TopicPartition
from ...group.offset_machine import NOTHING_COMMITTED
from ...group.offset_table import positions_of
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_NOTHING: Final[Mapping[int, Offset]] = {}
_GROUPS_AT_ONCE: Final = 256
"""So many are looked up beside each other: they share what the metadata store is asked."""
_STABLE: Final = frozenset[TopicPartition]()


async def handle(
    broker: "Broker", context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Look up what is committed."""
    version = context.api_version
    if version >= 8:
        groups: list[OffsetFetchResponseGroup] = []
        for start in range(0, len(request.groups), _GROUPS_AT_ONCE):
            some = request.groups[start : start + _GROUPS_AT_ONCE]
            empty = await broker.groups.uncommitted(group.group_id for group in some)
            groups += await asyncio.gather(
                *(
                    _fetch(
                        *(broker, context, group, request.require_stable),
                        is_empty=group.group_id in empty,
                    )
                    for group in some
                )
            )
        return OffsetFetchResponse(groups=groups)
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=_modern(request))
    return _classic(await _fetch(broker, context, asked, request.require_stable), asked, version)


async def _fetch(
    broker: "Broker",
    context: RequestContext,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
    *,
    is_empty: bool = False,
) -> OffsetFetchResponseGroup:
    try:
        context.authorize(Operation.DESCRIBE, group_resource(group.group_id))
        if is_empty:  # whoever asks: a group that does not exist has no members to check
            committed = NOTHING_COMMITTED
        else:
            committed = await broker.groups.committed_offsets(
                group.group_id, group.member_id, group.member_epoch
            )
    except ApiError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    offsets = committed.offsets
    unstable = committed.unstable if require_stable else _STABLE
    if group.topics is None:
        topics = _everything(broker, context, offsets, unstable)
    else:
        topics = [_some(broker, context, offsets, topic, unstable) for topic in group.topics]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _everything(
    broker: "Broker",
    context: RequestContext,
    offsets: Offsets,
    unstable: Collection[TopicPartition],
) -> list[OffsetFetchResponseTopics]:
    """All that is committed; where topics go by their ids, of those that exist."""
    answers = []
    indexes = {name: list(committed) for name, committed in offsets.items()}
    for name, index in unstable:
        if index not in offsets.get(name, _NOTHING):
            indexes.setdefault(name, []).append(index)
    for name, some in indexes.items():
        if not context.may(Operation.DESCRIBE, topic_resource(name)):
            continue
        topic = broker.metadata.topics.get(name)
        if topic is not None or context.api_version < 10:
            topic_id = topic.id if topic is not None else ZERO_UUID
            committed = offsets.get(name, _NOTHING)
            answers.append(_topic(name, topic_id, some, committed, unstable))
    return answers


def _some(
    broker: "Broker",
    context: RequestContext,
    offsets: Offsets,
    wanted: OffsetFetchRequestTopics,
    unstable: Collection[TopicPartition],
) -> OffsetFetchResponseTopics:
    name, error = wanted.name, ErrorCode.NONE
    if context.api_version >= 10:
        topic = broker.metadata.topics_by_id.get(wanted.topic_id)
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            name = topic.name
    if not error and not context.allows(Operation.DESCRIBE, topic_resource(name)):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if error:
        return _topic(name, wanted.topic_id, wanted.partition_indexes, _NOTHING, (), error)
    committed = offsets.get(name, _NOTHING)
    return _topic(name, wanted.topic_id, wanted.partition_indexes, committed, unstable)


def _topic(
    name: str,
    topic_id: bytes,
    indexes: Iterable[int],
    committed: Mapping[int, Offset],
    unstable: Collection[TopicPartition],
    error: ErrorCode = ErrorCode.NONE,
) -> OffsetFetchResponseTopics:
    partitions = [
        OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            metadata=metadata,
            error_code=error,
        )
        for index, offset, leader_epoch, metadata in positions_of(committed, indexes)
    ]
    for one in partitions if unstable else ():
        if (name, one.partition_index) in unstable:
            one.committed_offset = one.committed_leader_epoch = -1
            one.metadata = ""
            one.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)


def _modern(request: OffsetFetchRequest) -> list[OffsetFetchRequestTopics] | None:
    """The topics of a request for one group, as requests for many have them."""
    if request.topics is None:
        return None
    return [
        OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
        for topic in request.topics
    ]


def _classic(
    group: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, version: int
) -> OffsetFetchResponse:
    """The response for one group."""
    topics = group.topics
    if group.error_code and version < 2:
        error = ErrorCode(group.error_code)
        topics = [
            _topic(topic.name, ZERO_UUID, topic.partition_indexes, _NOTHING, (), error)
            for topic in asked.topics or ()
        ]
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name, partitions=[_classic_partition(item) for item in topic.partitions]
            )
            for topic in topics
        ],
    )


def _classic_partition(item: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=item.partition_index,
        committed_offset=item.committed_offset,
        committed_leader_epoch=item.committed_leader_epoch,
        metadata=item.metadata,
        error_code=item.error_code,
    )
