"""The lean way of OffsetCommit: by members, or clients, of groups that are in memory.

What is refused, has to wait for a group to be loaded, or names a topic that is not known goes the
general way, as in :mod:`.lean`, before any offset is stored.
"""

import asyncio
from typing import TYPE_CHECKING

from qbus.errors import ErrorCode
from qbus.wire import ApiKey, encode_response
from qbus.wire.lean import LeanTopic, read_commit
from qbus.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from ..authorization import AccessControl, Operation, group
from ..authorization import topic as topic_resource
from ..group.committing import PackedTopic
from ..group.offset_table import IS_BUILT, positions
from ..net.peer import Peer
from ..partition.purgatory import Delayed
from .lean_answers import ExclusiveAnswer, Parts

if TYPE_CHECKING:
    from ..broker import Broker


def commit(
    broker: "Broker", frame: memoryview, peer: Peer, access: AccessControl | None, _limit: int
) -> Delayed[Parts] | None:
    """Store the offsets of an OffsetCommit request; the answer comes when they are stored.

    ``access``: what is asked whether the client may, if anything is restricted.
    """
    request = read_commit(frame) if IS_BUILT else None
    if request is None:
        return None
    version, correlation_id, group_id, generation, member_id, instance_id, topics, stored = request
    known = _known(broker, topics)
    if known is None or (access is not None and not _may_commit(access, peer, group_id, known)):
        return None
    delayed = DelayedCommit(broker.replicas.purgatory.loop, version, correlation_id, topics, stored)
    is_begun = broker.groups.begin_commit(
        group_id,
        known,
        delayed.committed,
        member_id=member_id,
        instance_id=instance_id,
        generation=generation,
    )
    return delayed if is_begun else None


def _known(broker: "Broker", topics: list[LeanTopic]) -> list[PackedTopic] | None:
    """The positions by name and id of topics that exist; None: something cannot be committed."""
    metadata, limit = broker.metadata, broker.config.offset_metadata_max_bytes
    known: list[PackedTopic] = []
    for key, packed, count, last, longest in topics:
        topic = metadata.topics.get(key) if isinstance(key, str) else metadata.topics_by_id.get(key)
        if topic is None or last >= len(topic.partitions) or longest > limit:
            return None
        known.append((topic.name, topic.id, packed, count))
    if len(known) > 1 and len({name for name, _, _, _ in known}) < len(known):
        return None  # one comes twice: of its partitions the later count
    return known


def _may_commit(
    access: AccessControl, peer: Peer, group_id: str, topics: list[PackedTopic]
) -> bool:
    """Whether a client may commit all this, and nobody wants this request recorded."""
    if not access.allows_peer(peer, Operation.READ, group(group_id)):
        return False
    for name, _, _, _ in topics:
        if not access.allows_peer(peer, Operation.READ, topic_resource(name)):
            return False
    return not access.is_record_due


class DelayedCommit(ExclusiveAnswer):
    """The answer to a plain OffsetCommit request, whose offsets are being stored."""

    __slots__ = ("_correlation_id", "_stored", "_topics", "_version")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        version: int,
        correlation_id: int,
        topics: list[LeanTopic],
        stored: bytes,
    ) -> None:
        """``stored``: the answer if all of it is."""
        super().__init__(loop)
        self._version = version
        self._correlation_id = correlation_id
        self._topics = topics
        self._stored = stored

    def committed(self, code: ErrorCode) -> None:
        """The offsets are stored (NONE), or it is not known whether they are."""
        self.answer(self._refused(code) if code else [self._stored])

    def _refused(self, code: ErrorCode) -> Parts:
        answers = []
        for key, packed, count, _, _ in self._topics:
            answer = OffsetCommitResponseTopic(
                partitions=[
                    OffsetCommitResponsePartition(partition_index=position[0], error_code=code)
                    for position in positions(packed, count)
                ]
            )
            if isinstance(key, str):
                answer.name = key
            else:
                answer.topic_id = key
            answers.append(answer)
        response = OffsetCommitResponse(topics=answers)
        parts = encode_response(ApiKey.OFFSET_COMMIT, self._version, self._correlation_id, response)
        return [b"".join(parts)]
