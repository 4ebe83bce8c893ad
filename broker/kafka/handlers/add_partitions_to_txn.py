"""AddPartitionsToTxn (key 24): partitions that a transaction is going to write to (KIP-98).

Versions 0 to 3 come from producers, and have one transaction: all its partitions are added, or
none. If one of them cannot be, the others get OPERATION_NOT_ATTEMPTED. 4 and 5 come from brokers
(KIP-890): for each of several transactions they add partitions, or ask whether they belong to it.
Before version 2 a fenced producer gets INVALID_PRODUCER_EPOCH (KIP-588), before version 5 a
partition that does not belong to the transaction INVALID_TXN_STATE.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError, ErrorCode
from qbus.names import INTERNAL_TOPICS
from qbus.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnGroupResult,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

from ...authorization import CLUSTER, Operation, transactional_id
from ...authorization import topic as topic_resource
from ...transaction import Participants, Place, Question
from ...turns import in_pieces
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_FIRST_OF_BROKERS: Final = 4
_FIRST_WITH_FENCED: Final = 2
_FIRST_WITH_ABORTABLE: Final = 5


async def handle(
    broker: "Broker", context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add partitions, or answer whether they were added."""
    if context.api_version < _FIRST_OF_BROKERS:
        return await _of_producer(broker, context, request)
    if not context.allows(Operation.CLUSTER_ACTION, CLUSTER):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    knows_abortable = context.api_version >= _FIRST_WITH_ABORTABLE
    return AddPartitionsToTxnResponse(
        results_by_transaction=await asyncio.gather(
            *(_answer(broker, one, knows_abortable) for one in request.transactions)
        )
    )


async def _of_producer(
    broker: "Broker", context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    name = request.v3_and_below_transactional_id
    partitions = _places(request.v3_and_below_topics)
    answers: Mapping[Place, ErrorCode]
    try:
        context.authorize(Operation.WRITE, transactional_id(name))
        refused: dict[Place, ErrorCode] = {}
        async for piece in in_pieces(partitions):
            refused |= {place: code for place in piece if (code := _why(broker, context, place))}
        if refused:
            answers = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused
        else:
            producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
            await broker.transactions.add(name, producer, partitions)
            answers = dict.fromkeys(partitions, ErrorCode.NONE)
    except ApiError as error:
        answers = dict.fromkeys(partitions, told_to_producer(error.code, context.api_version))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(answers))


def told_to_producer(code: ErrorCode, version: int) -> ErrorCode:
    """What a producer gets: clients of old versions do not know PRODUCER_FENCED."""
    if code is ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _why(broker: "Broker", context: RequestContext, place: Place) -> ErrorCode:
    """Why the transaction cannot write to a partition, or NONE."""
    topic, index = place
    if topic in INTERNAL_TOPICS or not context.allows(Operation.WRITE, topic_resource(topic)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = broker.metadata.topics.get(topic)
    if known is None or not 0 <= index < len(known.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


async def _answer(
    broker: "Broker", transaction: AddPartitionsToTxnTransaction, knows_abortable: bool
) -> AddPartitionsToTxnResult:
    name, groups = transaction.transactional_id, frozenset(transaction.groups)
    question = Question(
        name,
        (transaction.producer_id, transaction.producer_epoch),
        Participants(frozenset(_places(transaction.topics)), groups),
    )
    answers = await broker.transactions.answer(question, add=not transaction.verify_only)
    if not knows_abortable:
        answers = {
            one: ErrorCode.INVALID_TXN_STATE if code is ErrorCode.TRANSACTION_ABORTABLE else code
            for one, code in answers.items()
        }
    partitions = {one: code for one, code in answers.items() if not isinstance(one, str)}
    return AddPartitionsToTxnResult(
        transactional_id=name,
        topic_results=_results(partitions),
        group_results=[
            AddPartitionsToTxnGroupResult(group_id=one, error_code=code)
            for one, code in answers.items()
            if isinstance(one, str)
        ],
    )


def _places(topics: Iterable[AddPartitionsToTxnTopic]) -> list[Place]:
    places = ((topic.name, index) for topic in topics for index in topic.partitions)
    return list(dict.fromkeys(places))


def _results(answers: Mapping[Place, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (topic, index), code in answers.items():
        result = topics.setdefault(topic, AddPartitionsToTxnTopicResult(name=topic))
        result.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        )
    return list(topics.values())
