"""Partitions: where their replicas are, who leads them, what they hold and who writes to them."""

from collections.abc import Iterable, Mapping, Sequence

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from qbus.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from qbus.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from qbus.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

from ..errors import api_error, check
from ..net.retry import Outcomes, retrying, succeeded
from ..types import TopicPartition, by_topic
from .base import AdminBase
from .types import Reassignment

_PREFERRED, _UNCLEAN = 0, 1


class Partitions(AdminBase):
    """The part of the admin client that is about replicas of partitions."""

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> None:
        """Move partitions to other brokers: returns once that has begun (KIP-455).

        Each partition gets the brokers that it is to be on, the first of them preferred as its
        leader; None stops a move that goes on.
        """

        async def ask(wanted: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self._server_timeout_ms,
                topics=[
                    ReassignableTopic(
                        name=topic,
                        partitions=[
                            ReassignablePartition(
                                partition_index=index,
                                replicas=_listed(targets[TopicPartition(topic, index)]),
                            )
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(wanted).items()
                ],
            )
            response: AlterPartitionReassignmentsResponse = await self._cluster.ask_controller(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS, request
            )
            check(response.error_code, response.error_message)
            return {
                TopicPartition(topic.name, answer.partition_index): _error(
                    topic.name, answer.partition_index, answer.error_code, answer.error_message
                )
                for topic in response.responses
                for answer in topic.partitions
            }

        await self._by_controller(targets, ask)

    async def cancel_reassignments(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop moving partitions; NO_REASSIGNMENT_IN_PROGRESS for those that are not moved."""
        await self.alter_reassignments(dict.fromkeys(partitions))

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Those of ``partitions`` (None: of all) that are on the move."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        request = ListPartitionReassignmentsRequest(
            timeout_ms=self._server_timeout_ms, topics=topics
        )

        async def ask(_: list[None]) -> Outcomes[None, ListPartitionReassignmentsResponse]:
            response: ListPartitionReassignmentsResponse = await self._cluster.ask_controller(
                ApiKey.LIST_PARTITION_REASSIGNMENTS, request
            )
            check(response.error_code, response.error_message)
            return {None: response}

        response = (await self._by_controller([None], ask))[None]
        return {
            TopicPartition(topic.name, moving.partition_index): Reassignment(
                tuple(moving.replicas),
                tuple(moving.adding_replicas),
                tuple(moving.removing_replicas),
            )
            for topic in response.topics
            for moving in topic.partitions
        }

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, bool]:
        """Let the preferred replica of each partition (None: of all) lead it again.

        ``unclean``: let any live replica lead partitions that have no leader, in sync or not, which
        may lose records. Tells of each partition whether it has a new leader; False: none was
        needed.
        """
        wanted = None
        if partitions is not None:
            wanted = [
                TopicPartitions(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        request = ElectLeadersRequest(
            election_type=_UNCLEAN if unclean else _PREFERRED,
            topic_partitions=wanted,
            timeout_ms=self._server_timeout_ms,
        )

        async def attempt() -> ElectLeadersResponse:
            response: ElectLeadersResponse = await self._cluster.ask_controller(
                ApiKey.ELECT_LEADERS, request
            )
            if response.error_code == ErrorCode.NOT_CONTROLLER:
                self._cluster.metadata.forget_controller()
            check(response.error_code)
            return response

        response = await retrying(attempt, self._cluster.request_timeout)
        outcomes: Outcomes[TopicPartition, bool] = {}
        for topic in response.replica_election_results:
            for result in topic.partition_result:
                error = _error(
                    topic.topic, result.partition_id, result.error_code, result.error_message
                )
                not_needed = result.error_code == ErrorCode.ELECTION_NOT_NEEDED
                outcomes[TopicPartition(topic.topic, result.partition_id)] = (
                    False if not_needed else error or True
                )
        return succeeded(outcomes)

    async def eligible_leaders(
        self, topics: Iterable[str]
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """The brokers that could lead each partition of ``topics`` though not in sync (KIP-966).

        Empty where the cluster keeps no such list, or does not tell.
        """
        wanted = [TopicRequest(name=topic) for topic in sorted(set(topics))]
        found: dict[TopicPartition, tuple[int, ...]] = {}
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

            page = await retrying(attempt, self._cluster.request_timeout)
            for topic in page.topics:
                for one in topic.partitions:
                    place = TopicPartition(topic.name or "", one.partition_index)
                    found[place] = tuple(one.eligible_leader_replicas or ())
            cursor = page.next_cursor
            if cursor is None:
                break
        return found


def _listed(brokers: Sequence[int] | None) -> list[int] | None:
    return None if brokers is None else list(brokers)


def _error(topic: str, partition: int, code: int, message: str | None) -> ApiError | None:
    return api_error(code, message, of=f"{topic}-{partition}") if code else None
