"""The admin client's requests, and what their responses say. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from qbus.consumer_protocol import decode_assignment
from qbus.errors import ApiError, ErrorCode, WireError
from qbus.wire import ZERO_UUID
from qbus.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from qbus.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from qbus.wire.messages.consumer_group_describe import Assignment
from qbus.wire.messages.consumer_group_describe import DescribedGroup as ConsumerGroupDescribed
from qbus.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from qbus.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from qbus.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from qbus.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from qbus.wire.messages.describe_configs import DescribeConfigsResourceResult
from qbus.wire.messages.describe_delayed import (
    DescribeDelayedRequest,
    DescribeDelayedResponse,
)
from qbus.wire.messages.describe_delayed import PartitionRequest as WantedDelayed
from qbus.wire.messages.describe_delayed import TopicRequest as DelayedOfTopic
from qbus.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from qbus.wire.messages.describe_log_dirs import DescribeLogDirsResult
from qbus.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from qbus.wire.messages.describe_producers import PartitionResponse as ProducersOfPartition
from qbus.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from qbus.wire.messages.describe_transactions import DescribeTransactionsResponse
from qbus.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from qbus.wire.messages.incremental_alter_configs import AlterableConfig
from qbus.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity
from qbus.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from qbus.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from qbus.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from qbus.wire.messages.offset_commit import OffsetCommitResponse
from qbus.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from qbus.wire.messages.queue_offsets import PartitionRequest as WantedQueue
from qbus.wire.messages.queue_offsets import QueueOffsetsRequest, QueueOffsetsResponse
from qbus.wire.messages.queue_offsets import TopicRequest as QueuesOfTopic
from qbus.wire.messages.share_group_describe import Assignment as ShareAssignment
from qbus.wire.messages.share_group_describe import DescribedGroup as ShareGroupDescribed
from qbus.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from ..errors import api_error, check
from ..net.metadata import describe
from ..net.retry import Outcomes
from ..types import (
    ConfigEntry,
    ConfigSource,
    DamagedBatches,
    GroupDescription,
    LogDir,
    MemberDescription,
    Node,
    ReplicaSize,
    TopicDescription,
    TopicPartition,
    by_topic,
)
from .types import (
    CreatedTopic,
    DelayedRecord,
    DelayedRecords,
    HangingTransaction,
    NewTopic,
    ProducerState,
    QueueState,
    Reassignment,
    TopicRef,
    TransactionDescription,
    TransactionListing,
)

T = TypeVar("T")


_CONSUMER_PROTOCOL = "consumer"
_SHARE_PROTOCOL = "share"
_CLASSIC_MEMBER = 0
"""The type of a member of a group of the consumer protocol that speaks the classic one."""
_DEAD = "Dead"
_OPEN_STATES = {"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"}
_PREFERRED, _UNCLEAN = 0, 1
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_DESCRIBE = 0


def topic_error(topic: TopicRef, code: int, message: str | None) -> ApiError | None:
    """Return the error of one topic, if there is one."""
    return api_error(code, message, of=f"topic {topic}") if code else None


def _partition_error(
    topic: str, partition: int, code: int, message: str | None = None
) -> ApiError | None:
    return api_error(code, message, of=f"{topic}-{partition}") if code else None


# Topics.


def create_topics(
    topics: Iterable[NewTopic], timeout_ms: int, *, validate_only: bool
) -> CreateTopicsRequest:
    """Return the request that creates ``topics``."""
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                    for index, brokers in enumerate(topic.assignments or ())
                ],
                configs=[
                    CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.config.items()
                ],
            )
            for topic in topics
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def created_topic(result: CreatableTopicResult) -> CreatedTopic | ApiError:
    """Return what became of one topic of a CreateTopics request."""
    return topic_error(result.name, result.error_code, result.error_message) or CreatedTopic(
        name=result.name,
        topic_id=UUID(bytes=result.topic_id or ZERO_UUID),
        partitions=result.num_partitions,
        replication_factor=result.replication_factor,
    )


def delete_topics(topics: Iterable[TopicRef], timeout_ms: int) -> DeleteTopicsRequest:
    """Return the request that deletes ``topics``."""
    return DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name=None, topic_id=topic.bytes)
            if isinstance(topic, UUID)
            else DeleteTopicState(name=topic)
            for topic in topics
        ],
        timeout_ms=timeout_ms,
    )


def deleted_topics(
    response: DeleteTopicsResponse, topics: Sequence[TopicRef]
) -> Outcomes[TopicRef, str]:
    """Return the names of the deleted topics, by what the request called them."""
    outcomes: Outcomes[TopicRef, str] = {}
    for result in response.responses:
        name, topic_id = result.name or "", UUID(bytes=result.topic_id)
        topic = topic_id if topic_id in topics else name
        outcomes[topic] = topic_error(topic, result.error_code, result.error_message) or name
    return outcomes


def describe_topics(topics: Iterable[TopicRef]) -> MetadataRequest:
    """Return the request for the descriptions of ``topics``."""
    return MetadataRequest(
        topics=[
            MetadataRequestTopic(topic_id=topic.bytes, name=None)
            if isinstance(topic, UUID)
            else MetadataRequestTopic(name=topic)
            for topic in topics
        ],
        allow_auto_topic_creation=False,
    )


def described_topics(
    response: MetadataResponse, topics: Sequence[TopicRef]
) -> Outcomes[TopicRef, TopicDescription]:
    """Return the descriptions, by what the request called the topics."""
    outcomes: Outcomes[TopicRef, TopicDescription] = {}
    for found in response.topics:
        topic_id = UUID(bytes=found.topic_id)
        topic = topic_id if topic_id in topics else found.name or ""
        try:
            outcomes[topic] = describe(found)
        except ApiError as error:
            outcomes[topic] = error
    return outcomes


def create_partitions(
    topic: str,
    total: int,
    assignments: Sequence[Sequence[int]] | None,
    timeout_ms: int,
    *,
    validate_only: bool,
) -> CreatePartitionsRequest:
    """Return the request that gives ``topic`` partitions until it has ``total``."""
    chosen = None
    if assignments is not None:
        chosen = [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignments]
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=total, assignments=chosen)],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


# Replicas.


def alter_reassignments(
    targets: Mapping[TopicPartition, Sequence[int] | None],
    partitions: Iterable[TopicPartition],
    timeout_ms: int,
) -> AlterPartitionReassignmentsRequest:
    """Return the request that moves ``partitions`` to their ``targets`` (None: stops the move)."""

    def replicas(partition: TopicPartition) -> list[int] | None:
        brokers = targets[partition]
        return None if brokers is None else list(brokers)

    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        topics=[
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(
                        partition_index=index, replicas=replicas(TopicPartition(topic, index))
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(partitions).items()
        ],
    )


def altered_reassignments(
    response: AlterPartitionReassignmentsResponse,
) -> Outcomes[TopicPartition, None]:
    """Return which moves began; raises the error of the whole request."""
    check(response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, answer.partition_index): _partition_error(
            topic.name, answer.partition_index, answer.error_code, answer.error_message
        )
        for topic in response.responses
        for answer in topic.partitions
    }


def list_reassignments(
    partitions: Iterable[TopicPartition] | None, timeout_ms: int
) -> ListPartitionReassignmentsRequest:
    """Return the request for the moves of ``partitions`` (None: of all)."""
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(partitions).items()
        ]
    return ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)


def reassignments(
    response: ListPartitionReassignmentsResponse,
) -> dict[TopicPartition, Reassignment]:
    """Return the partitions on the move."""
    return {
        TopicPartition(topic.name, moving.partition_index): Reassignment(
            tuple(moving.replicas), tuple(moving.adding_replicas), tuple(moving.removing_replicas)
        )
        for topic in response.topics
        for moving in topic.partitions
    }


def elect_leaders(
    partitions: Iterable[TopicPartition] | None, timeout_ms: int, *, unclean: bool
) -> ElectLeadersRequest:
    """Return the request that elects leaders for ``partitions`` (None: for all)."""
    topics = None
    if partitions is not None:
        topics = [
            TopicPartitions(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(partitions).items()
        ]
    return ElectLeadersRequest(
        election_type=_UNCLEAN if unclean else _PREFERRED,
        topic_partitions=topics,
        timeout_ms=timeout_ms,
    )


def elected_leaders(response: ElectLeadersResponse) -> Outcomes[TopicPartition, bool]:
    """Return for each partition whether it got a new leader; False: it needed none."""
    outcomes: Outcomes[TopicPartition, bool] = {}
    for topic in response.replica_election_results:
        for result in topic.partition_result:
            index, code = result.partition_id, result.error_code
            error = _partition_error(topic.topic, index, code, result.error_message)
            not_needed = code == ErrorCode.ELECTION_NOT_NEEDED
            outcomes[TopicPartition(topic.topic, index)] = False if not_needed else error or True
    return outcomes


def alter_replica_log_dirs(
    paths: Mapping[TopicPartition, str], partitions: Iterable[TopicPartition]
) -> AlterReplicaLogDirsRequest:
    """Return the request that moves replicas of ``partitions`` to the directories in ``paths``."""
    by_path: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        by_path.setdefault(paths[partition], []).append(partition)
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                    for topic, indexes in by_topic(placed).items()
                ],
            )
            for path, placed in by_path.items()
        ]
    )


def altered_replica_log_dirs(
    response: AlterReplicaLogDirsResponse,
) -> Outcomes[TopicPartition, None]:
    """Return which replicas began to move."""
    return {
        TopicPartition(topic.topic_name, found.partition_index): _partition_error(
            topic.topic_name, found.partition_index, found.error_code
        )
        for topic in response.results
        for found in topic.partitions
    }


def log_dir(node_id: int, result: DescribeLogDirsResult) -> LogDir:
    """Return one log directory of a broker; an offline one is no error."""
    is_online = result.error_code == ErrorCode.NONE
    if result.error_code != ErrorCode.KAFKA_STORAGE_ERROR:  # the directory is offline
        check(result.error_code, of=f"{result.log_dir} of broker {node_id}")
    replicas = [
        ReplicaSize(
            topic.name,
            partition.partition_index,
            partition.partition_size,
            lag=partition.offset_lag,
            is_future=partition.is_future_key,
            compaction_problem=partition.compaction_problem,
            damage=tuple(
                DamagedBatches(
                    one.path,
                    one.position,
                    one.size,
                    one.first_offset,
                    one.last_offset,
                    one.since_ms,
                    one.problem,
                )
                for one in partition.damage
            ),
        )
        for topic in result.topics
        for partition in topic.partitions
    ]
    return LogDir(
        node_id=node_id,
        path=result.log_dir,
        is_online=is_online,
        total_bytes=result.total_bytes,
        usable_bytes=result.usable_bytes,
        replicas=tuple(sorted(replicas, key=lambda replica: (replica.topic, replica.partition))),
        problem=result.problem,
    )


# Records.


def delete_records(
    before: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition], timeout_ms: int
) -> DeleteRecordsRequest:
    """Return the request that deletes the records of ``partitions`` before an offset each."""
    return DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(
                        partition_index=index, offset=before[TopicPartition(topic, index)]
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(partitions).items()
        ],
        timeout_ms=timeout_ms,
    )


def deleted_records(response: DeleteRecordsResponse) -> Outcomes[TopicPartition, int]:
    """Return the new first offsets."""
    outcomes: Outcomes[TopicPartition, int] = {}
    for topic in response.topics:
        for found in topic.partitions:
            error = _partition_error(topic.name, found.partition_index, found.error_code)
            outcomes[TopicPartition(topic.name, found.partition_index)] = (
                error or found.low_watermark
            )
    return outcomes


def describe_producers(partitions: Iterable[TopicPartition]) -> DescribeProducersRequest:
    """Return the request for the producers of ``partitions``."""
    return DescribeProducersRequest(
        topics=[
            TopicRequest(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(partitions).items()
        ]
    )


def list_transactions(
    states: Iterable[str],
    producer_ids: Iterable[int],
    min_duration_ms: int | None,
    pattern: str | None,
) -> ListTransactionsRequest:
    """Return the request for the transactional ids that a broker coordinates."""
    return ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if min_duration_ms is None else min_duration_ms,
        transactional_id_pattern=pattern,
    )


def transaction_listings(
    response: ListTransactionsResponse, coordinator: int
) -> list[TransactionListing]:
    """Return the transactional ids of one broker."""
    check(response.error_code, of=f"broker {coordinator}")
    if response.unknown_state_filters:
        unknown = ", ".join(response.unknown_state_filters)
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the broker knows no such state: {unknown}")
    return [
        TransactionListing(
            found.transactional_id, found.producer_id, found.transaction_state, coordinator
        )
        for found in response.transaction_states
    ]


def transaction_description(
    response: DescribeTransactionsResponse, transactional_id: str, coordinator: int
) -> TransactionDescription:
    """Return how a transactional id stands; raise the coordinator's error."""
    for found in response.transaction_states:
        if found.transactional_id == transactional_id:
            check(found.error_code, of=f"transactional id {transactional_id}")
            is_open = found.transaction_state in _OPEN_STATES
            return TransactionDescription(
                transactional_id=transactional_id,
                coordinator=coordinator,
                state=found.transaction_state,
                producer_id=found.producer_id,
                producer_epoch=found.producer_epoch,
                timeout_ms=found.transaction_timeout_ms,
                start_time=found.transaction_start_time_ms if is_open else None,
                partitions=tuple(
                    TopicPartition(topic.topic, index)
                    for topic in found.topics
                    for index in topic.partitions
                ),
            )
    raise ApiError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"the broker did not answer for transactional id {transactional_id}",
    )


def abort_marker(hanging: HangingTransaction) -> WriteTxnMarkersRequest:
    """Return the request for the marker that aborts a transaction in its partition."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=hanging.producer_id,
                producer_epoch=hanging.producer_epoch,
                coordinator_epoch=max(hanging.coordinator_epoch, 0),
                topics=[
                    WritableTxnMarkerTopic(
                        name=hanging.topic, partition_indexes=[hanging.partition]
                    )
                ],
            )
        ]
    )


def wrote_markers(response: WriteTxnMarkersResponse) -> Outcomes[TopicPartition, None]:
    """Return what came of the marker in each partition."""
    return {
        TopicPartition(topic.name, found.partition_index): _partition_error(
            topic.name, found.partition_index, found.error_code
        )
        for marker in response.markers
        for topic in marker.topics
        for found in topic.partitions
    }


def open_transactions(
    partition: TopicPartition, producers: Iterable[ProducerState], begun_before: int
) -> list[HangingTransaction]:
    """Return the open transactions of a partition whose last record is older than a time."""
    return [
        HangingTransaction(
            topic=partition.topic,
            partition=partition.partition,
            start_offset=producer.transaction_start,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=producer.coordinator_epoch,
            last_timestamp=producer.last_timestamp,
        )
        for producer in producers
        if producer.transaction_start >= 0 and producer.last_timestamp <= begun_before
    ]


def describe_queues(group: str, partitions: Iterable[TopicPartition] | None) -> QueueOffsetsRequest:
    """Return the request for what ``group`` did in ``partitions``; None: in all that are led."""
    return QueueOffsetsRequest(
        action=_DESCRIBE,
        group_id=group,
        topics=None
        if partitions is None
        else [
            QueuesOfTopic(
                name=topic,
                partitions=[WantedQueue(partition_index=index) for index in indexes],
            )
            for topic, indexes in by_topic(partitions).items()
        ],
    )


def described_queues(response: QueueOffsetsResponse) -> Outcomes[TopicPartition, QueueState]:
    """Return what a group did in each partition."""
    check(response.error_code)
    outcomes: Outcomes[TopicPartition, QueueState] = {}
    for topic in response.topics:
        for found in topic.partitions:
            index = found.partition_index
            error = _partition_error(topic.name, index, found.error_code, found.error_message)
            outcomes[TopicPartition(topic.name, index)] = error or QueueState(
                start_offset=found.start_offset,
                length=found.length,
                in_flight=found.in_flight,
                delayed=found.delayed,
                oldest_ms=None if found.oldest_ms < 0 else found.oldest_ms,
                taken=found.taken,
                acknowledged=found.acknowledged,
                released=found.released,
                timeouts=found.timeouts,
                dead_letters=found.dead_letters,
                dropped=found.dropped,
                filtered=found.filtered,
                expired=found.expired,
                given_up=found.given_up,
            )
    return outcomes


def describe_delayed(
    partitions: Iterable[TopicPartition],
    limit: int = 0,
    after: tuple[int, int] = (-1, -1),
    offsets: Iterable[int] = (),
) -> DescribeDelayedRequest:
    """Return the request for what ``partitions`` hold back; the records at ``offsets`` whole."""
    whole = [*offsets]
    return DescribeDelayedRequest(
        topics=[
            DelayedOfTopic(
                name=topic,
                partitions=[
                    WantedDelayed(
                        partition_index=index,
                        limit=limit,
                        after_due=after[0],
                        after_offset=after[1],
                        offsets=whole,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(partitions).items()
        ]
    )


def described_delayed(
    response: DescribeDelayedResponse,
) -> Outcomes[TopicPartition, DelayedRecords]:
    """Return what each partition holds back."""
    outcomes: Outcomes[TopicPartition, DelayedRecords] = {}
    for topic in response.topics:
        for found in topic.partitions:
            index = found.partition_index
            error = _partition_error(topic.name, index, found.error_code, found.error_message)
            outcomes[TopicPartition(topic.name, index)] = error or DelayedRecords(
                found.pending,
                None if found.next_due < 0 else found.next_due,
                tuple(
                    DelayedRecord(
                        due=record.due,
                        offset=record.offset,
                        original_offset=record.original_offset,
                        taken=record.taken,
                        key=None if record.key is None else bytes(record.key),
                        size=record.size,
                        ttl=None if record.ttl < 0 else record.ttl,
                        value=None if record.value is None else bytes(record.value),
                        headers=tuple(
                            (one.key, None if one.value is None else bytes(one.value))
                            for one in record.headers
                        ),
                    )
                    for record in found.records
                ),
            )
    return outcomes


def described_producers(
    response: DescribeProducersResponse,
) -> Outcomes[TopicPartition, tuple[ProducerState, ...]]:
    """Return the producers of each partition, by their ids."""
    outcomes: Outcomes[TopicPartition, tuple[ProducerState, ...]] = {}
    for topic in response.topics:
        for found in topic.partitions:
            index = found.partition_index
            error = _partition_error(topic.name, index, found.error_code, found.error_message)
            outcomes[TopicPartition(topic.name, index)] = error or _producer_states(found)
    return outcomes


def _producer_states(found: ProducersOfPartition) -> tuple[ProducerState, ...]:
    return tuple(
        ProducerState(
            producer_id=state.producer_id,
            epoch=state.producer_epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_timestamp,
            coordinator_epoch=state.coordinator_epoch,
            transaction_start=state.current_txn_start_offset,
        )
        for state in sorted(found.active_producers, key=lambda state: state.producer_id)
    )


# Configuration.


def config_entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    """Return one key of a configuration."""
    try:
        source = ConfigSource(config.config_source)
    except ValueError:  # of a later protocol
        source = ConfigSource.UNKNOWN
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=source,
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        documentation=config.documentation,
    )


def config_changes(
    set_values: Mapping[str, str] | None,
    unset: Iterable[str],
    append: Mapping[str, str] | None,
    subtract: Mapping[str, str] | None,
) -> list[AlterableConfig]:
    """Return the changes in the protocol's terms (KIP-339)."""
    changes = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for operation, values in ((_SET, set_values), (_APPEND, append), (_SUBTRACT, subtract))
        for key, value in (values or {}).items()
    ]
    return changes + [
        AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in unset
    ]


# Groups.


def group_description(found: DescribedGroup, coordinator: Node) -> GroupDescription:
    """Return a group as users see it; raises GROUP_ID_NOT_FOUND for one that does not exist."""
    check(found.error_code, found.error_message, of=f"group {found.group_id}")
    if found.group_state == _DEAD:  # how brokers before DescribeGroups v6 say "no such group"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {found.group_id}")
    is_consumer = found.protocol_type == _CONSUMER_PROTOCOL
    return GroupDescription(
        group=found.group_id,
        state=found.group_state,
        protocol_type=found.protocol_type,
        protocol=found.protocol_data,
        coordinator=coordinator,
        members=tuple(_member(member, is_consumer=is_consumer) for member in found.members),
    )


def _member(member: DescribedGroupMember, *, is_consumer: bool) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=decode_assignment(bytes(member.member_assignment)) if is_consumer else (),
    )


def consumer_group_description(
    found: ConsumerGroupDescribed, coordinator: Node
) -> GroupDescription:
    """Return a group of the consumer protocol as users see it; raises GROUP_ID_NOT_FOUND."""
    check(found.error_code, found.error_message, of=f"group {found.group_id}")
    return GroupDescription(
        group=found.group_id,
        state=found.group_state,
        protocol_type=_CONSUMER_PROTOCOL,
        protocol=found.assignor_name,
        coordinator=coordinator,
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.client_host,
                assignment=_assigned(member.assignment),
                epoch=member.member_epoch,
                target=_assigned(member.target_assignment),
                is_classic=member.member_type == _CLASSIC_MEMBER,
            )
            for member in found.members
        ),
        type=_CONSUMER_PROTOCOL,
        epoch=found.group_epoch,
    )


def share_group_description(found: ShareGroupDescribed, coordinator: Node) -> GroupDescription:
    """Return a share group as users see it; raises GROUP_ID_NOT_FOUND."""
    check(found.error_code, found.error_message, of=f"group {found.group_id}")
    return GroupDescription(
        group=found.group_id,
        state=found.group_state,
        protocol_type=_SHARE_PROTOCOL,
        protocol=found.assignor_name,
        coordinator=coordinator,
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                instance_id=None,
                client_id=member.client_id,
                host=member.client_host,
                assignment=_assigned(member.assignment),
                epoch=member.member_epoch,
                is_classic=False,
            )
            for member in found.members
        ),
        type=_SHARE_PROTOCOL,
        epoch=found.group_epoch,
    )


class ShareOffset(NamedTuple):
    """Where a share group begins in a partition, and how many records it has not done.

    -1: unknown. ``problem``: why.
    """

    start_offset: int
    lag: int
    problem: str


def describe_share_offsets(group: str) -> DescribeShareGroupOffsetsRequest:
    """Return the question where a share group begins, wherever it has taken records."""
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    return DescribeShareGroupOffsetsRequest(groups=[wanted])


def share_offsets(
    response: DescribeShareGroupOffsetsResponse,
) -> dict[TopicPartition, ShareOffset]:
    """Return where a share group begins; raises ApiError."""
    (group,) = response.groups
    check(group.error_code, group.error_message, of=f"group {group.group_id}")
    return {
        TopicPartition(topic.topic_name, one.partition_index): ShareOffset(
            one.start_offset,
            one.lag,
            (one.error_message or ErrorCode(one.error_code).name) if one.error_code else "",
        )
        for topic in group.topics
        for one in topic.partitions
    }


def _assigned(assignment: Assignment | ShareAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, index)
            for topic in assignment.topic_partitions
            for index in topic.partitions
        )
    )


def leaving_members(
    group: GroupDescription, members: Iterable[str] | None, reason: str | None
) -> list[MemberIdentity]:
    """Return ``members`` (None: all of ``group``), named by member id or by instance id."""
    static = {member.instance_id for member in group.members if member.instance_id is not None}
    if members is None:
        members = [member.instance_id or member.member_id for member in group.members]
    return [
        MemberIdentity(member_id="", group_instance_id=name, reason=reason)
        if name in static
        else MemberIdentity(member_id=name, reason=reason)
        for name in members
    ]


def removed_members(group: str, response: LeaveGroupResponse) -> Outcomes[str, None]:
    """Return which members were removed; raises the error of the whole request."""
    check(response.error_code, of=f"group {group}")
    outcomes: Outcomes[str, None] = {}
    for member in response.members:
        name, code = member.group_instance_id or member.member_id, member.error_code
        outcomes[name] = api_error(code, of=f"member {name}") if code else None
    return outcomes


def delete_offsets(group: str, partitions: Iterable[TopicPartition]) -> OffsetDeleteRequest:
    """Return the request that deletes what ``group`` has committed for ``partitions``."""
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in indexes],
            )
            for topic, indexes in by_topic(partitions).items()
        ],
    )


def altered_offsets(
    response: OffsetCommitResponse | OffsetDeleteResponse,
) -> Outcomes[TopicPartition, None]:
    """Return for which partitions offsets were committed or deleted."""
    return {
        TopicPartition(topic.name, partition.partition_index): _partition_error(
            topic.name, partition.partition_index, partition.error_code
        )
        for topic in response.topics
        for partition in topic.partitions
    }


def outcomes(items: Iterable[T], results: list[tuple[int, str | None]]) -> Outcomes[T, None]:
    """Return what came of each item, by its place in the response."""
    named = list(items)
    if len(named) != len(results):
        raise WireError(f"{len(results)} results for {len(named)} items")
    return {
        item: outcome(code, message, str(item))
        for item, (code, message) in zip(named, results, strict=True)
    }


def outcome(code: int, message: str | None, what: str) -> ApiError | None:
    """Return the error of a result, if it is one; ``what`` it is about."""
    return None if code == ErrorCode.NONE else api_error(code, message, of=what)
