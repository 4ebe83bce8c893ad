"""The asyncio admin client."""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from time import time as now
from typing import Any, Self, TypeVar, Unpack

from qbus.errors import ApiError, ConfigError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from qbus.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsResponse
from qbus.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from qbus.wire.messages.create_partitions import CreatePartitionsResponse
from qbus.wire.messages.create_topics import CreateTopicsResponse
from qbus.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from qbus.wire.messages.delete_records import DeleteRecordsResponse
from qbus.wire.messages.delete_topics import DeleteTopicsResponse
from qbus.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from qbus.wire.messages.describe_delayed import DescribeDelayedResponse
from qbus.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from qbus.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from qbus.wire.messages.describe_producers import DescribeProducersResponse
from qbus.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsResponse
from qbus.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from qbus.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from qbus.wire.messages.elect_leaders import ElectLeadersResponse
from qbus.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from qbus.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from qbus.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from qbus.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from qbus.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from qbus.wire.messages.list_transactions import ListTransactionsResponse
from qbus.wire.messages.metadata import MetadataResponse
from qbus.wire.messages.offset_commit import OffsetCommitResponse
from qbus.wire.messages.offset_delete import OffsetDeleteResponse
from qbus.wire.messages.queue_offsets import QueueOffsetsResponse
from qbus.wire.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from qbus.wire.messages.write_txn_markers import WriteTxnMarkersResponse

from ..committed import commit_request, fetch_committed
from ..errors import PartialFailure, api_error, check
from ..net.cluster import Cluster, CoordinatorKind
from ..net.retry import Outcomes, ask_each, results_or_raise, retry_each, retrying
from ..net.routing import COORDINATOR_MOVED, ask_leaders, retry_at_coordinator
from ..offsets import list_offsets
from ..security import SecurityOptions, security_of
from ..types import (
    EARLIEST,
    LATEST,
    ClusterDescription,
    ConfigEntry,
    ConfigKind,
    GroupDescription,
    GroupListing,
    GroupOffset,
    LogDir,
    Node,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Partition,
    TopicDescription,
    TopicPartition,
    committable,
    keyed,
    named,
)
from . import acls, messages, security
from .types import (
    CreatedTopic,
    DelayedRecord,
    DelayedRecords,
    Filter,
    HangingTransaction,
    NewTopic,
    ProducerState,
    QueueState,
    QuotaEntity,
    Reassignment,
    Rule,
    ScramCredentialInfo,
    ScramUpsert,
    TopicRef,
    TransactionDescription,
    TransactionListing,
)

K = TypeVar("K")
T = TypeVar("T")

Ask = Callable[[list[K]], Awaitable[Outcomes[K, T]]]
"""Asks for items once; returns what came of ask_each, or raises what holds for all of them."""

_UNKNOWN_PARTITION = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_UNKNOWN_TOPIC = _UNKNOWN_PARTITION | {ErrorCode.UNKNOWN_TOPIC_ID}
_UNKNOWN_OFFSET = OffsetAndTimestamp(-1, -1)
_TRANSACTION = CoordinatorKind.TRANSACTION
_OF_ONE_BROKER = {ConfigKind.BROKER, ConfigKind.BROKER_LOGGER}


class _AllBut(Container[ErrorCode]):
    def __init__(self, *codes: ErrorCode) -> None:
        self._codes = frozenset(codes)

    def __contains__(self, code: object) -> bool:
        return code not in self._codes


_NOT_REPEATABLE = _AllBut(
    ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NETWORK_EXCEPTION
)
"""The errors after which the controller may have done what it was asked. To ask it again would be
answered by "exists already"."""


class Admin:
    """Inspects and changes a cluster: Qbus, or Apache Kafka from 3.0 on.

    An async context manager. Every method raises :class:`~qbus.errors.ApiError` with the broker's
    code and message; it retries retriable errors until ``request_timeout_ms`` is over. A method for
    several items does what it can, and then raises :class:`~qbus.clients.PartialFailure` with the
    outcome of each. A partition may be given as a :class:`TopicPartition`, or as a pair.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str = "qbus-admin",
        request_timeout_ms: int = 30_000,
        **security: Unpack[SecurityOptions],
    ) -> None:
        """Connect at the first request.

        bootstrap: ``host:port,...``, a list of addresses, or ``zk://host:port,.../chroot``.
        client_id: the name of this client in the brokers' logs and quotas.
        request_timeout_ms: how long an answer may take, retries included; a method that sends
            several requests one after another may take as long for each.
        security: what protects the connections; see :class:`~qbus.clients.SecurityOptions` for it,
            and for the options that may stand in its place.

        Raises :class:`~qbus.errors.ConfigError`.
        """
        self._cluster = Cluster(
            bootstrap,
            client_id,
            request_timeout_ms / 1000,
            security=security_of("Admin", **security),
        )

    @classmethod
    def over(cls, cluster: Cluster) -> Self:
        """An admin client over the connections of ``cluster``, which the caller closes."""
        admin = cls.__new__(cls)
        admin._cluster = cluster
        return admin

    def __repr__(self) -> str:
        return f"<Admin of {self._cluster.name}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()

    # Topics.

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        assignments: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create a topic; -1 leaves a number to the broker.

        ``assignments``: the brokers of each partition, in place of the two numbers.
        ``validate_only``: only check whether it is possible.
        """
        topic = NewTopic(name, partitions, replication_factor, assignments, config or {})
        return (await self.create_topics([topic], validate_only=validate_only))[name]

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic]:
        """Create several topics; return the outcomes by name."""
        by_name = {topic.name: topic for topic in topics}

        async def ask(names: list[str]) -> Outcomes[str, CreatedTopic]:
            response: CreateTopicsResponse = await self._cluster.ask_controller(
                ApiKey.CREATE_TOPICS,
                messages.create_topics(
                    [by_name[name] for name in names],
                    self._server_timeout_ms,
                    validate_only=validate_only,
                ),
            )
            return {topic.name: messages.created_topic(topic) for topic in response.topics}

        return await self._by_controller(by_name, ask)

    async def delete_topic(self, topic: TopicRef) -> None:
        """Delete a topic, named or by its id, with all its records."""
        await self.delete_topics([topic])

    async def delete_topics(self, topics: Iterable[TopicRef]) -> None:
        """Delete several topics with all their records."""

        async def ask(wanted: list[TopicRef]) -> Outcomes[TopicRef, str]:
            response: DeleteTopicsResponse = await self._cluster.ask_controller(
                ApiKey.DELETE_TOPICS, messages.delete_topics(wanted, self._server_timeout_ms)
            )
            return messages.deleted_topics(response, wanted)

        deleted = await self._by_controller(topics, ask)
        self._cluster.metadata.forget(deleted.values())

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """Return all topics, by name; ``internal`` ones only on request.

        Topics that the broker cannot describe at the moment are left out.
        """
        await retrying(self._cluster, "the topics", lambda: self._cluster.refresh(None))
        topics = sorted(self._cluster.metadata.topics.items())
        return [topic for _, topic in topics if internal or not topic.is_internal]

    async def describe_topic(self, topic: TopicRef) -> TopicDescription:
        """Return a topic by name or id; UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID if
        missing.
        """
        return (await self.describe_topics([topic]))[topic]

    async def describe_topics(self, topics: Iterable[TopicRef]) -> dict[TopicRef, TopicDescription]:
        """Return several topics, under the names or ids given."""

        async def ask(wanted: list[TopicRef]) -> Outcomes[TopicRef, TopicDescription]:
            response: MetadataResponse = await self._cluster.ask_any(
                ApiKey.METADATA, messages.describe_topics(wanted)
            )
            return messages.described_topics(response, wanted)

        return results_or_raise(
            await retry_each(
                self._cluster, topics, ask, final=_UNKNOWN_TOPIC, subject="topic {}".format
            )
        )

    async def create_partitions(
        self,
        topic: str,
        total: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Add partitions to a topic until it has ``total``.

        ``assignments``: the brokers of each new partition, by default chosen by the controller.
        ``validate_only``: only check whether it is possible.
        """

        async def ask(_: list[str]) -> Outcomes[str, None]:
            response: CreatePartitionsResponse = await self._cluster.ask_controller(
                ApiKey.CREATE_PARTITIONS,
                messages.create_partitions(
                    topic, total, assignments, self._server_timeout_ms, validate_only=validate_only
                ),
            )
            return {
                result.name: messages.topic_error(
                    result.name, result.error_code, result.error_message
                )
                for result in response.results
            }

        await self._by_controller([topic], ask)
        self._cluster.metadata.forget([topic])

    # Replicas of partitions.

    async def alter_reassignments(self, targets: Mapping[Any, Sequence[int] | None]) -> None:
        """Start moving partitions to other brokers (KIP-455).

        Each partition gets the brokers that it is to be on, the first of them the preferred leader;
        None stops a move under way.
        """
        targets = keyed(targets)

        async def ask(wanted: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            response: AlterPartitionReassignmentsResponse = await self._cluster.ask_controller(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                messages.alter_reassignments(targets, wanted, self._server_timeout_ms),
            )
            return messages.altered_reassignments(response)

        await self._by_controller(targets, ask)

    async def cancel_reassignments(self, partitions: Iterable[Partition]) -> None:
        """Stop moving partitions; NO_REASSIGNMENT_IN_PROGRESS for those that are not on the
        move.
        """
        await self.alter_reassignments(dict.fromkeys(partitions))

    async def list_reassignments(
        self, partitions: Iterable[Partition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return those of ``partitions`` (None: of all) that are on the move."""
        request = messages.list_reassignments(named(partitions), self._server_timeout_ms)

        async def ask(_: list[None]) -> Outcomes[None, ListPartitionReassignmentsResponse]:
            response: ListPartitionReassignmentsResponse = await self._cluster.ask_controller(
                ApiKey.LIST_PARTITION_REASSIGNMENTS, request
            )
            check(response.error_code, response.error_message)
            return {None: response}

        return messages.reassignments((await self._by_controller([None], ask))[None])

    async def elect_leaders(
        self, partitions: Iterable[Partition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, bool]:
        """Make the preferred replica of each partition (None: of all) its leader again.

        ``unclean``: let any live replica, in sync or not, lead partitions without a leader, which
        may lose records. Returns for each partition whether it got a new leader; False: it needed
        none.
        """
        request = messages.elect_leaders(
            named(partitions), self._server_timeout_ms, unclean=unclean
        )

        async def attempt() -> ElectLeadersResponse:
            response: ElectLeadersResponse = await self._cluster.ask_controller(
                ApiKey.ELECT_LEADERS, request
            )
            if response.error_code == ErrorCode.NOT_CONTROLLER:
                self._cluster.metadata.forget_controller()
            check(response.error_code)
            return response

        response = await retrying(self._cluster, "the controller", attempt)
        return results_or_raise(messages.elected_leaders(response))

    async def eligible_leaders(
        self, topics: Iterable[str]
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the eligible leader replicas of each partition of ``topics`` (KIP-966).

        Empty where the cluster keeps or reports no such list. Raises
        :class:`~qbus.clients.PartialFailure`, or the error itself of one topic.
        """
        wanted = [TopicRequest(name=topic) for topic in sorted(set(topics))]
        found: dict[TopicPartition, tuple[int, ...]] = {}
        failed: dict[str, ApiError] = {}
        cursor: Cursor | None = None
        while wanted:
            request = DescribeTopicPartitionsRequest(topics=wanted, cursor=cursor)

            async def attempt(
                request: DescribeTopicPartitionsRequest = request,
            ) -> DescribeTopicPartitionsResponse:
                response: DescribeTopicPartitionsResponse = await self._cluster.ask_any(
                    ApiKey.DESCRIBE_TOPIC_PARTITIONS, request
                )
                return response

            page = await retrying(self._cluster, "the topics", attempt)
            for topic in page.topics:
                name = topic.name or ""
                if topic.error_code:
                    failed[name] = api_error(topic.error_code, of=name)
                for partition in topic.partitions:
                    place = TopicPartition(name, partition.partition_index)
                    found[place] = tuple(partition.eligible_leader_replicas or ())
            cursor = page.next_cursor
            if cursor is None:
                break
        if len(failed) == 1 == len(wanted):
            raise next(iter(failed.values()))
        if failed:
            raise PartialFailure(failed, found)
        return found

    # Records of partitions.

    async def list_offsets(
        self, partitions: Mapping[Any, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the first offset at or after a time, in milliseconds since the Unix epoch.

        EARLIEST, LATEST and MAX_TIMESTAMP stand for the first offset, the one after the last, and
        the record with the largest timestamp.

        timeout_ms: how long partitions are waited for that have no leader, or cannot be read; by
            default ``request_timeout_ms``.
        """
        timeout = None if timeout_ms is None else timeout_ms / 1000
        return await list_offsets(self._cluster, keyed(partitions), timeout)

    async def delete_records(self, before: Mapping[Any, int]) -> dict[TopicPartition, int]:
        """Delete the records before an offset (LATEST: all); return the new first offsets."""
        before = keyed(before)

        async def ask(node: int, led: list[TopicPartition]) -> Outcomes[TopicPartition, int]:
            response: DeleteRecordsResponse = await self._cluster.ask(
                node,
                ApiKey.DELETE_RECORDS,
                messages.delete_records(before, led, self._server_timeout_ms),
            )
            return messages.deleted_records(response)

        return await ask_leaders(self._cluster, before, ask)

    async def describe_producers(
        self, partitions: Iterable[Partition]
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """Return the producers that the leader of each partition remembers (KIP-664)."""

        async def ask(
            node: int, led: list[TopicPartition]
        ) -> Outcomes[TopicPartition, tuple[ProducerState, ...]]:
            response: DescribeProducersResponse = await self._cluster.ask(
                node, ApiKey.DESCRIBE_PRODUCERS, messages.describe_producers(led)
            )
            return messages.described_producers(response)

        return await ask_leaders(self._cluster, named(partitions), ask)

    async def describe_delayed(
        self,
        partitions: Iterable[Partition],
        *,
        limit: int = 0,
        after: tuple[int, int] = (-1, -1),
    ) -> dict[TopicPartition, DelayedRecords]:
        """Return what each partition holds back until it is due.

        With at most ``limit`` records, those behind the one whose due time and offset ``after``
        names. Brokers that know no delays, such as Kafka's, answer UNSUPPORTED_VERSION.
        """

        async def ask(
            node: int, led: list[TopicPartition]
        ) -> Outcomes[TopicPartition, DelayedRecords]:
            response: DescribeDelayedResponse = await self._cluster.ask(
                node, ApiKey.DESCRIBE_DELAYED, messages.describe_delayed(led, limit, after)
            )
            return messages.described_delayed(response)

        return await ask_leaders(self._cluster, named(partitions), ask)

    async def read_delayed(self, topic: str, partition: int, offset: int) -> DelayedRecord | None:
        """Return the delayed record whose producer was told ``offset``, whole.

        None: it is not held back (any more).
        """

        async def ask(
            node: int, led: list[TopicPartition]
        ) -> Outcomes[TopicPartition, DelayedRecords]:
            response: DescribeDelayedResponse = await self._cluster.ask(
                node, ApiKey.DESCRIBE_DELAYED, messages.describe_delayed(led, offsets=[offset])
            )
            return messages.described_delayed(response)

        place = TopicPartition(topic, partition)
        found = await ask_leaders(self._cluster, [place], ask)
        return next(iter(found[place].records), None)

    async def describe_queues(
        self, group: str, partitions: Iterable[Partition] | None = None
    ) -> dict[TopicPartition, QueueState]:
        """Return what a share group did in each partition; None: wherever it did something.

        Brokers that are not Qbus's answer UNSUPPORTED_VERSION.
        """
        if partitions is None:
            return await self._find_queues(group)

        async def ask(node: int, led: list[TopicPartition]) -> Outcomes[TopicPartition, QueueState]:
            response: QueueOffsetsResponse = await self._cluster.ask(
                node, ApiKey.QUEUE_OFFSETS, messages.describe_queues(group, led)
            )
            return messages.described_queues(response)

        return await ask_leaders(self._cluster, named(partitions), ask)

    async def _find_queues(self, group: str) -> dict[TopicPartition, QueueState]:
        async def ask(node: int) -> dict[TopicPartition, QueueState]:
            async def attempt() -> dict[TopicPartition, QueueState]:
                response: QueueOffsetsResponse = await self._cluster.ask(
                    node, ApiKey.QUEUE_OFFSETS, messages.describe_queues(group, None)
                )
                return results_or_raise(messages.described_queues(response))

            return await retrying(self._cluster, f"broker {node}", attempt)

        await self._find_brokers()
        found = results_or_raise(await ask_each(self._cluster.metadata.nodes, ask))
        return {place: state for of_one in found.values() for place, state in of_one.items()}

    # Configuration.

    async def describe_config(self, kind: ConfigKind, name: str) -> list[ConfigEntry]:
        """Return the configuration of a topic, of a broker by id, or of a group, sorted by key.

        The broker "" stands for the default that an operator has set for all brokers.
        """
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=kind, resource_name=name)],
            include_documentation=True,
        )
        response: DescribeConfigsResponse = await self._ask_config(
            kind, name, ApiKey.DESCRIBE_CONFIGS, request
        )
        entries = []
        for result in response.results:
            check(result.error_code, result.error_message, of=f"{kind.name.lower()} {name}")
            entries += [messages.config_entry(config) for config in result.configs]
        return sorted(entries, key=lambda entry: entry.name)

    async def describe_configs(
        self, resources: Iterable[tuple[ConfigKind, str]]
    ) -> dict[tuple[ConfigKind, str], list[ConfigEntry]]:
        """Return several configurations, each as :meth:`describe_config` does."""
        return results_or_raise(
            await ask_each(resources, lambda resource: self.describe_config(*resource))
        )

    async def alter_config(
        self,
        kind: ConfigKind,
        name: str,
        *,
        set: Mapping[str, str] | None = None,  # noqa: A002 - reads well where it is called
        unset: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change some keys; the others stay as they are (KIP-339).

        set: new values.
        unset: keys that return to their default.
        append, subtract: what lists, such as ``cleanup.policy``, get and lose.
        validate_only: only check whether it is possible.
        """
        changes = messages.config_changes(set, unset, append, subtract)
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
            ],
            validate_only=validate_only,
        )
        response: IncrementalAlterConfigsResponse = await self._ask_config(
            kind, name, ApiKey.INCREMENTAL_ALTER_CONFIGS, request
        )
        for result in response.responses:
            check(result.error_code, result.error_message, of=f"{kind.name.lower()} {name}")

    async def _ask_config(self, kind: ConfigKind, name: str, api: ApiKey, request: Any) -> Any:
        """Ask a broker about its own configuration, and any broker about everything else."""
        node_id = _node_id(name) if kind in _OF_ONE_BROKER and name else None

        async def attempt() -> Any:
            if node_id is None:
                return await self._cluster.ask_any(api, request)
            await self._cluster.need_node(node_id)
            return await self._cluster.ask(node_id, api, request)

        return await retrying(self._cluster, f"{kind.name.lower()} {name}", attempt)

    # Brokers.

    async def describe_cluster(self) -> ClusterDescription:
        """Return the brokers and the controller."""
        await self._find_brokers()
        known = self._cluster.metadata
        nodes = tuple(node for _, node in sorted(known.nodes.items()))
        return ClusterDescription(known.cluster_id, known.controller_id, nodes)

    async def describe_log_dirs(self, nodes: Iterable[int] | None = None) -> list[LogDir]:
        """Return the log directories of ``nodes`` (None: of all brokers) and their replicas.

        When some brokers do not answer, the :class:`~qbus.clients.PartialFailure` holds the
        directories of the others by broker id.
        """

        async def ask(node_id: int) -> list[LogDir]:
            async def attempt() -> list[LogDir]:
                await self._cluster.need_node(node_id)
                response: DescribeLogDirsResponse = await self._cluster.ask(
                    node_id, ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None)
                )
                check(response.error_code, of=f"broker {node_id}")
                return [messages.log_dir(node_id, result) for result in response.results]

            return await retrying(self._cluster, f"broker {node_id}", attempt)

        if nodes is None:
            await self._find_brokers()
            nodes = sorted(self._cluster.metadata.nodes)
        found = results_or_raise(await ask_each(nodes, ask))
        return [log_dir for log_dirs in found.values() for log_dir in log_dirs]

    async def alter_replica_log_dirs(self, node_id: int, paths: Mapping[Any, str]) -> None:
        """Start moving replicas of a broker to other directories of it.

        :meth:`describe_log_dirs` shows the progress.
        """
        paths = keyed(paths)

        async def ask(wanted: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            await self._cluster.need_node(node_id)
            response: AlterReplicaLogDirsResponse = await self._cluster.ask(
                node_id,
                ApiKey.ALTER_REPLICA_LOG_DIRS,
                messages.alter_replica_log_dirs(paths, wanted),
            )
            return messages.altered_replica_log_dirs(response)

        results_or_raise(
            await retry_each(
                self._cluster,
                paths,
                ask,
                final=_UNKNOWN_PARTITION,
                subject=lambda _: f"broker {node_id}",
            )
        )

    # Groups.

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """Return all groups, by name; only those in ``states`` and of ``types`` if some are given.

        When some brokers do not answer, the :class:`~qbus.clients.PartialFailure` holds the groups
        of the others by broker id.
        """
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        async def ask(node_id: int) -> list[GroupListing]:
            async def attempt() -> ListGroupsResponse:
                response: ListGroupsResponse = await self._cluster.ask(
                    node_id, ApiKey.LIST_GROUPS, request
                )
                check(response.error_code, of=f"broker {node_id}")
                return response

            return [
                GroupListing(
                    group.group_id, group.protocol_type, group.group_state, group.group_type
                )
                for group in (await retrying(self._cluster, f"broker {node_id}", attempt)).groups
            ]

        await self._find_brokers()
        found = results_or_raise(await ask_each(self._cluster.metadata.nodes, ask))
        listings = [listing for of_broker in found.values() for listing in of_broker]
        return sorted(listings, key=lambda listing: listing.group)

    async def describe_group(self, group: str) -> GroupDescription:
        """Return a group of any protocol; GROUP_ID_NOT_FOUND if it does not exist."""
        missing: ApiError | None = None
        for describe in (
            self._describe_classic_group,
            self._describe_consumer_group,
            self._describe_share_group,
        ):
            try:
                return await describe(group)
            except ApiError as error:
                is_older = missing is not None and error.code is ErrorCode.UNSUPPORTED_VERSION
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND and not is_older:
                    raise
                missing = missing or error
        assert missing is not None
        raise missing

    async def _describe_consumer_group(self, group: str) -> GroupDescription:
        async def attempt() -> GroupDescription:
            coordinator = await self._cluster.coordinator(group)
            response: ConsumerGroupDescribeResponse = await self._cluster.ask_coordinator(
                group,
                ApiKey.CONSUMER_GROUP_DESCRIBE,
                ConsumerGroupDescribeRequest(group_ids=[group]),
            )
            (found,) = response.groups
            return messages.consumer_group_description(found, await self._node(coordinator))

        return await retry_at_coordinator(self._cluster, group, attempt)

    async def _describe_share_group(self, group: str) -> GroupDescription:
        async def attempt() -> GroupDescription:
            coordinator = await self._cluster.coordinator(group)
            response: ShareGroupDescribeResponse = await self._cluster.ask_coordinator(
                group, ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest(group_ids=[group])
            )
            (found,) = response.groups
            return messages.share_group_description(found, await self._node(coordinator))

        return await retry_at_coordinator(self._cluster, group, attempt)

    async def _describe_classic_group(self, group: str) -> GroupDescription:
        async def attempt() -> GroupDescription:
            coordinator = await self._cluster.coordinator(group)
            response: DescribeGroupsResponse = await self._cluster.ask_coordinator(
                group, ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group])
            )
            for found in response.groups:
                if found.group_id == group:
                    return messages.group_description(found, await self._node(coordinator))
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker did not answer for group {group}"
            )

        return await retry_at_coordinator(self._cluster, group, attempt)

    async def describe_groups(self, groups: Iterable[str]) -> dict[str, GroupDescription]:
        """Return several groups, by name."""
        return results_or_raise(await ask_each(groups, self.describe_group))

    async def delete_group(self, group: str) -> None:
        """Delete a group without members, and its offsets."""

        async def attempt() -> None:
            response: DeleteGroupsResponse = await self._cluster.ask_coordinator(
                group, ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=[group])
            )
            for result in response.results:
                check(result.error_code, of=f"group {group}")

        await retry_at_coordinator(self._cluster, group, attempt)

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """Delete several groups without members, and their offsets."""
        results_or_raise(await ask_each(groups, self.delete_group))

    async def remove_members(
        self, group: str, members: Iterable[str] | None = None, *, reason: str | None = None
    ) -> None:
        """Remove members from a group, which rebalances; live ones may join again.

        members: member ids, or instance ids of static members; None: all.
        reason: written to the broker's log.
        """
        described = await self.describe_group(group)
        leaving = messages.leaving_members(described, members, reason)
        if not leaving:
            return
        request = LeaveGroupRequest(group_id=group, members=leaving)

        async def attempt() -> Outcomes[str, None]:
            response: LeaveGroupResponse = await self._cluster.ask_coordinator(
                group, ApiKey.LEAVE_GROUP, request
            )
            return messages.removed_members(group, response)

        results_or_raise(await retry_at_coordinator(self._cluster, group, attempt))

    # Transactions.

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        min_duration_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return all transactional ids, by name; only those that match what is given (KIP-664).

        min_duration_ms: with a transaction that has been open for longer.
        pattern: a regular expression in RE2's syntax for the whole id.

        When some brokers do not answer, the :class:`~qbus.clients.PartialFailure` holds the ids of
        the others by broker id.
        """
        request = messages.list_transactions(states, producer_ids, min_duration_ms, pattern)

        async def ask(node_id: int) -> list[TransactionListing]:
            async def attempt() -> list[TransactionListing]:
                response: ListTransactionsResponse = await self._cluster.ask(
                    node_id, ApiKey.LIST_TRANSACTIONS, request
                )
                return messages.transaction_listings(response, node_id)

            return await retrying(self._cluster, f"broker {node_id}", attempt)

        await self._find_brokers()
        found = results_or_raise(await ask_each(self._cluster.metadata.nodes, ask))
        listings = [listing for of_broker in found.values() for listing in of_broker]
        return sorted(listings, key=lambda listing: listing.transactional_id)

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Return how a transactional id stands; TRANSACTIONAL_ID_NOT_FOUND if it does not exist."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

        async def attempt() -> TransactionDescription:
            coordinator = await self._cluster.coordinator(transactional_id, _TRANSACTION)
            response: DescribeTransactionsResponse = await self._cluster.ask_coordinator(
                transactional_id, ApiKey.DESCRIBE_TRANSACTIONS, request, kind=_TRANSACTION
            )
            return messages.transaction_description(response, transactional_id, coordinator)

        return await retry_at_coordinator(self._cluster, transactional_id, attempt, _TRANSACTION)

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """Return several transactional ids, by name."""
        return results_or_raise(await ask_each(transactional_ids, self.describe_transaction))

    async def fence_producers(self, transactional_ids: Iterable[str]) -> None:
        """Shut out the producers with these transactional ids, and abort what they left open."""

        async def fence(transactional_id: str) -> None:
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=self._server_timeout_ms
            )

            async def attempt() -> None:
                response: InitProducerIdResponse = await self._cluster.ask_coordinator(
                    transactional_id, ApiKey.INIT_PRODUCER_ID, request, kind=_TRANSACTION
                )
                check(response.error_code, of=f"transactional id {transactional_id}")

            await retry_at_coordinator(self._cluster, transactional_id, attempt, _TRANSACTION)

        results_or_raise(await ask_each(transactional_ids, fence))

    async def find_hanging_transactions(
        self, partitions: Iterable[Partition], *, max_timeout_ms: int = 900_000
    ) -> list[HangingTransaction]:
        """Return the transactions that ``partitions`` hold open and that nobody will end.

        Their last record is older than ``max_timeout_ms``, the longest time-out of any producer
        (the brokers' ``transaction.max.timeout.ms``), and no coordinator knows of them.
        """
        begun_before = int(now() * 1000) - max_timeout_ms
        producers = await self.describe_producers(partitions)
        old = [
            found
            for partition, states in sorted(producers.items())
            for found in messages.open_transactions(partition, states, begun_before)
        ]
        if not old:
            return []
        listings = await self.list_transactions(producer_ids={found.producer_id for found in old})
        coordinated: dict[int, TransactionDescription] = {}
        for listing in listings:
            try:
                described = await self.describe_transaction(listing.transactional_id)
            except ApiError as error:
                if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
            else:
                coordinated[described.producer_id] = described
        return [found for found in old if not _is_coordinated(found, coordinated)]

    async def abort_transaction(self, hanging: HangingTransaction) -> None:
        """End a hanging transaction in its partition, past its coordinator.

        For what :meth:`find_hanging_transactions` returns alone: another transaction loses what it
        wrote to this partition, and nothing else. :meth:`fence_producers` aborts one that has a
        coordinator. Raises INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the
        partition has seen later ones.
        """
        place = TopicPartition(hanging.topic, hanging.partition)
        request = messages.abort_marker(hanging)

        async def ask(node: int, _: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            response: WriteTxnMarkersResponse = await self._cluster.ask(
                node, ApiKey.WRITE_TXN_MARKERS, request
            )
            return messages.wrote_markers(response)

        await ask_leaders(self._cluster, [place], ask)

    # Offsets of groups.

    async def committed_offsets(
        self, group: str, partitions: Iterable[Partition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what a group has committed for ``partitions`` (None: all); others are absent."""
        return await fetch_committed(self._cluster, group, named(partitions))

    async def group_offsets(
        self, group: str, partitions: Iterable[Partition] = ()
    ) -> list[GroupOffset]:
        """Return what a group has committed, with its lag, by topic and partition.

        partitions: listed too if nothing is committed for them; their committed offset is -1.
        """
        uncommitted = dict.fromkeys(named(partitions), OffsetAndMetadata(-1))
        committed = uncommitted | await self.committed_offsets(group)
        (starts, unread), (ends, unread_ends) = await asyncio.gather(
            self._known_offsets(committed, EARLIEST), self._known_offsets(committed, LATEST)
        )
        unread |= unread_ends
        return [
            GroupOffset(
                topic=partition.topic,
                partition=partition.partition,
                committed_offset=offset.offset,
                metadata=offset.metadata,
                start_offset=starts.get(partition, _UNKNOWN_OFFSET).offset,
                end_offset=ends.get(partition, _UNKNOWN_OFFSET).offset,
                problem=str(unread.get(partition, "")),
            )
            for partition, offset in sorted(committed.items())
        ]

    async def share_group_offsets(self, group: str) -> list[GroupOffset]:
        """Return where a share group begins, with its lag, by topic and partition (KIP-932)."""

        async def attempt() -> dict[TopicPartition, messages.ShareOffset]:
            response: DescribeShareGroupOffsetsResponse = await self._cluster.ask_coordinator(
                group,
                ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
                messages.describe_share_offsets(group),
            )
            return messages.share_offsets(response)

        found = await retry_at_coordinator(self._cluster, group, attempt)
        (starts, unread), (ends, unread_ends) = await asyncio.gather(
            self._known_offsets(found, EARLIEST), self._known_offsets(found, LATEST)
        )
        unread |= unread_ends
        return [
            GroupOffset(
                topic=partition.topic,
                partition=partition.partition,
                committed_offset=offset.start_offset,
                metadata="",
                start_offset=starts.get(partition, _UNKNOWN_OFFSET).offset,
                end_offset=ends.get(partition, _UNKNOWN_OFFSET).offset,
                problem=str(unread.get(partition) or offset.problem),
                undone=offset.lag,
            )
            for partition, offset in sorted(found.items())
        ]

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[Any, int | OffsetAndMetadata]
    ) -> None:
        """Commit exactly ``offsets`` for a group without members.

        Raises UNKNOWN_MEMBER_ID if it has members, which would overwrite the offsets.
        """
        whole = committable(offsets)

        async def ask(wanted: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            response: OffsetCommitResponse = await self._cluster.ask_coordinator(
                group,
                ApiKey.OFFSET_COMMIT,
                commit_request(group, {partition: whole[partition] for partition in wanted}),
            )
            return messages.altered_offsets(response)

        await self._by_coordinator(group, whole, ask)

    async def reset_group_offsets(
        self,
        group: str,
        partitions: Iterable[Partition] | None = None,
        *,
        time: int = EARLIEST,
    ) -> dict[TopicPartition, int]:
        """Set the offsets of a group without members by time; return the new offsets.

        partitions: by default all for which it has committed an offset.
        time: EARLIEST, LATEST, or milliseconds since the Unix epoch: the first record at or after
            it, or the end of the partition without one.
        """
        if partitions is None:
            partitions = await self.committed_offsets(group)
        wanted = named(partitions)
        found = await list_offsets(self._cluster, dict.fromkeys(wanted, time))
        nothing_so_late = [partition for partition in wanted if found[partition].offset < 0]
        found |= await list_offsets(self._cluster, dict.fromkeys(nothing_so_late, LATEST))
        offsets = {partition: found[partition].offset for partition in wanted}
        await self.alter_group_offsets(group, offsets)
        return offsets

    async def delete_group_offsets(self, group: str, partitions: Iterable[Partition]) -> None:
        """Delete what a group has committed for partitions of topics that it does not read."""

        async def ask(wanted: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            response: OffsetDeleteResponse = await self._cluster.ask_coordinator(
                group, ApiKey.OFFSET_DELETE, messages.delete_offsets(group, wanted)
            )
            check(response.error_code, of=f"group {group}")
            return messages.altered_offsets(response)

        await self._by_coordinator(group, named(partitions), ask)

    # Security.

    async def create_acls(self, rules: Iterable[Rule]) -> None:
        """Add rules; one that is there already is no error."""
        await acls.create_acls(self._cluster, rules)

    async def describe_acls(self, found_by: Filter | None = None) -> list[Rule]:
        """Return the rules that agree with a filter; by default all."""
        return await acls.describe_acls(self._cluster, found_by or Filter())

    async def delete_acls(self, found_by: Iterable[Filter]) -> list[Rule]:
        """Delete the rules that agree with any of the filters; return them."""
        return await acls.delete_acls(self._cluster, found_by)

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, list[ScramCredentialInfo]]:
        """Return the SCRAM credentials of ``users``; by default of all who have any.

        Raises RESOURCE_NOT_FOUND for one who has none.
        """
        return await security.describe_scram(self._cluster, users)

    async def alter_user_scram_credentials(
        self,
        upserts: Iterable[ScramUpsert] = (),
        deletions: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Store SCRAM credentials, and delete others: pairs of user and mechanism (KIP-554).

        Of a user with several changes one is made after another.
        """
        await security.alter_scram(self._cluster, upserts, deletions)

    async def describe_client_quotas(
        self, entity: Mapping[str, str | None] | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas that are set (KIP-546).

        entity: types ("user", "client-id", "ip") and names, of which None is the default: only
            quotas with these. By default all.
        strict: leave out those that are more specific.
        """
        return await security.describe_quotas(self._cluster, entity, strict=strict)

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]]
    ) -> None:
        """Set quotas of clients, such as "producer_byte_rate"; None removes one (KIP-546)."""
        await security.alter_quotas(self._cluster, changes)

    # Requests and retries.

    @property
    def _server_timeout_ms(self) -> int:
        """How long a broker may wait for others: less than this client waits for its answer."""
        return int(self._cluster.request_timeout * 900)

    async def _by_controller(self, items: Iterable[K], ask: Ask[K, T]) -> dict[K, T]:
        """Return the controller's result for each item, wherever the controller moves.

        Asks again only for what the controller certainly did not do.
        """
        forget = self._cluster.metadata.forget_controller
        attempt = _forgetting(ask, {ErrorCode.NOT_CONTROLLER}, forget)
        return results_or_raise(
            await retry_each(
                self._cluster,
                items,
                attempt,
                final=_NOT_REPEATABLE,
                subject=lambda _: "the controller",
            )
        )

    async def _by_coordinator(
        self, group: str, partitions: Iterable[TopicPartition], ask: Ask[TopicPartition, T]
    ) -> dict[TopicPartition, T]:
        """Return the result of the group's coordinator for each partition, wherever it moves."""
        attempt = _forgetting(
            ask, COORDINATOR_MOVED, lambda: self._cluster.forget_coordinator(group)
        )
        return results_or_raise(
            await retry_each(
                self._cluster,
                partitions,
                attempt,
                final=_UNKNOWN_PARTITION,
                subject=lambda _: f"group {group}",
            )
        )

    async def _find_brokers(self) -> None:
        await retrying(self._cluster, "the brokers", lambda: self._cluster.refresh(()))

    async def _node(self, node_id: int) -> Node:
        await self._cluster.need_node(node_id)
        return self._cluster.metadata.nodes[node_id]

    async def _known_offsets(
        self, partitions: Iterable[TopicPartition], time: int
    ) -> tuple[dict[TopicPartition, OffsetAndTimestamp], dict[TopicPartition, ApiError]]:
        """Return where partitions begin or end, and why some cannot be read.

        Those that do not exist any more are in neither. Raises if nothing can be read.
        """
        wanted = dict.fromkeys(partitions, time)
        try:
            return await list_offsets(self._cluster, wanted), {}
        except PartialFailure as error:
            unread = {place: why for place, why in error.errors.items() if not _is_gone(why)}
            if error.results or not unread:
                return dict(error.results), unread
            raise
        except ApiError as error:
            if _is_gone(error):
                return {}, {}
            raise


def _forgetting(
    ask: Ask[K, T], moved: Container[ErrorCode], forget: Callable[[], None]
) -> Ask[K, T]:
    """Return ``ask``, calling ``forget`` when an answer says that the wrong broker was asked."""

    async def attempt(wanted: list[K]) -> Outcomes[K, T]:
        try:
            outcomes = await ask(wanted)
        except ApiError as error:
            outcomes = dict.fromkeys(wanted, error)
        if any(isinstance(found, ApiError) and found.code in moved for found in outcomes.values()):
            forget()
        return outcomes

    return attempt


def _is_coordinated(
    found: HangingTransaction, coordinated: Mapping[int, TransactionDescription]
) -> bool:
    """Whether a coordinator knows that its transaction has a record in the partition."""
    known = coordinated.get(found.producer_id)
    return (
        known is not None
        and known.producer_epoch == found.producer_epoch
        and TopicPartition(found.topic, found.partition) in known.partitions
    )


def _is_gone(error: ApiError) -> bool:
    return error.code in _UNKNOWN_PARTITION


def _node_id(name: str) -> int:
    if not (name.isascii() and name.isdigit()):
        raise ConfigError(f"a broker is named by its id, not {name!r}")
    return int(name)
