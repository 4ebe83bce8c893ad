"""TxnOffsetCommit (key 28): a group's positions as a part of a producer's transaction (KIP-98).

They count when the transaction is committed. From version 3 on the request may name the member that
read up to there, which is checked as in OffsetCommit (KIP-447). Up to version 4 the transaction has
to have the group already, by AddOffsetsToTxn; from version 5 on this request adds it (KIP-890).
Offsets of a topic that was deleted and created again are refused with UNKNOWN_TOPIC_ID where the
request has its id, which is a tagged field of Qbus's own.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError, ErrorCode
from qbus.names import OFFSETS_TOPIC
from qbus.wire import ZERO_UUID
from qbus.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from ...authorization import Operation, group, transactional_id
from ...authorization import topic as topic_resource
from ...group import Offset, TopicPartition
from ...turns import Pace, next_turn
from ..context import RequestContext
from .offset_commit import PARTITIONS_AT_ONCE, refusal

if TYPE_CHECKING:
    from ...broker import Broker

_FIRST_THAT_ADDS: Final = 5
_FIRST_ABORTABLE: Final = 4
_OF_TOPIC: Final = 5  # a topic costs as much as so many partitions

# This API has no errors of members of KIP-848.
_GENERATION_IS_OVER: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH})
# The answers are those to Produce; here clients try again at another error.
_VERIFIED: Final = {ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
# What a client of a version before the error knows takes as the same.
_ABORTABLE: Final = {ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE}


async def handle(
    broker: "Broker", context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Commit what can be committed; every partition has an answer of its own."""
    denied = _denial(context, request)
    if denied:
        return TxnOffsetCommitResponse(topics=[_refuse(topic, denied) for topic in request.topics])
    offsets: dict[TopicPartition, Offset] = {}
    pace = Pace(PARTITIONS_AT_ONCE)
    answers = [await _take(broker, context, topic, offsets, pace) for topic in request.topics]
    error = ErrorCode.NONE
    if offsets:
        error = await _commit(broker, context.api_version, request, offsets)
    if error:
        for partition in (partition for answer in answers for partition in answer.partitions):
            partition.error_code = partition.error_code or error
    return TxnOffsetCommitResponse(topics=answers)


def _refuse(wanted: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=wanted.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
            for one in wanted.partitions
        ],
    )


def _denial(context: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    if not context.allows(Operation.WRITE, transactional_id(request.transactional_id)):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.allows(Operation.READ, group(request.group_id)):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


async def _take(
    broker: "Broker",
    context: RequestContext,
    wanted: TxnOffsetCommitRequestTopic,
    offsets: dict[TopicPartition, Offset],
    pace: Pace,
) -> TxnOffsetCommitResponseTopic:
    """Add what can be committed to ``offsets``, and answer for the rest."""
    topic = broker.metadata.topics.get(wanted.name)
    is_denied = not context.allows(Operation.READ, topic_resource(wanted.name))
    is_other = topic is not None and wanted.topic_id not in {ZERO_UUID, topic.id}
    limit = broker.config.offset_metadata_max_bytes
    answers = []
    if pace.is_over(_OF_TOPIC):
        await next_turn()
    for partition in wanted.partitions:
        if pace.is_over():
            await next_turn()
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not is_denied:
            index = partition.partition_index
            error = ErrorCode.UNKNOWN_TOPIC_ID
            if not is_other:
                error = refusal(topic, index, partition.committed_metadata, limit)
        if topic is not None and not error:
            offsets[topic.name, partition.partition_index] = Offset(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                topic_id=topic.id,
            )
        answers.append(
            TxnOffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error
            )
        )
    return TxnOffsetCommitResponseTopic(name=wanted.name, partitions=answers)


async def _commit(
    broker: "Broker",
    version: int,
    request: TxnOffsetCommitRequest,
    offsets: dict[TopicPartition, Offset],
) -> ErrorCode:
    try:
        await broker.groups.commit_in_transaction(
            request.group_id,
            offsets,
            producer_id=request.producer_id,
            epoch=request.producer_epoch,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            verify=partial(_verify, broker, version, request),
            has_new_epoch=version >= _FIRST_THAT_ADDS,
        )
    except ApiError as error:
        if error.code in _GENERATION_IS_OVER:
            return ErrorCode.ILLEGAL_GENERATION
        return error.code if version >= _FIRST_ABORTABLE else _ABORTABLE.get(error.code, error.code)
    return ErrorCode.NONE


async def _verify(
    broker: "Broker", version: int, request: TxnOffsetCommitRequest, partition: int | None
) -> ErrorCode:
    """Ask the transaction's coordinator whether the group belongs to the transaction, or add it.

    ``partition``: of the log that has the group's offsets; None: they are in the metadata store.
    """
    transactions, adds = broker.transactions, version >= _FIRST_THAT_ADDS
    name, producer_id, epoch = (
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
    )
    if partition is None:
        code = await transactions.verify_group(name, producer_id, epoch, request.group_id, add=adds)
    else:
        place = (OFFSETS_TOPIC, partition)
        code = (await transactions.verify(name, producer_id, epoch, [place], add=adds))[place]
    return _VERIFIED.get(code, code)
