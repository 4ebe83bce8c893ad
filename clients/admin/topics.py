"""Topics: creating, deleting, listing, describing them, and giving them more partitions."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ZERO_UUID, ApiKey
from qbus.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from qbus.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from qbus.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from qbus.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

from ..errors import api_error
from ..net.metadata import describe
from ..net.retry import Outcomes, retrying, settle, succeeded
from ..types import TopicDescription
from .base import AdminBase
from .types import CreatedTopic, NewTopic, TopicRef


class Topics(AdminBase):
    """The part of the admin client that is about topics."""

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
        ``validate_only``: only say whether it could be done.
        """
        topic = NewTopic(name, partitions, replication_factor, assignments, config or {})
        return (await self.create_topics([topic], validate_only=validate_only))[name]

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic]:
        """Create several topics; what came of each by its name."""
        by_name = {topic.name: topic for topic in topics}

        async def ask(names: list[str]) -> Outcomes[str, CreatedTopic]:
            request = CreateTopicsRequest(
                topics=[_creatable(by_name[name]) for name in names],
                timeout_ms=self._server_timeout_ms,
                validate_only=validate_only,
            )
            response: CreateTopicsResponse = await self._cluster.ask_controller(
                ApiKey.CREATE_TOPICS, request
            )
            return {topic.name: _created(topic) for topic in response.topics}

        return await self._by_controller(by_name, ask)

    async def delete_topic(self, topic: TopicRef) -> None:
        """Delete a topic, named or by its id, with all its records."""
        await self.delete_topics([topic])

    async def delete_topics(self, topics: Iterable[TopicRef]) -> None:
        """Delete several topics with all their records."""

        async def ask(wanted: list[TopicRef]) -> Outcomes[TopicRef, str]:
            request = DeleteTopicsRequest(
                topics=[
                    DeleteTopicState(name=None, topic_id=topic.bytes)
                    if isinstance(topic, UUID)
                    else DeleteTopicState(name=topic)
                    for topic in wanted
                ],
                timeout_ms=self._server_timeout_ms,
            )
            response: DeleteTopicsResponse = await self._cluster.ask_controller(
                ApiKey.DELETE_TOPICS, request
            )
            outcomes: Outcomes[TopicRef, str] = {}
            for result in response.responses:
                name, topic_id = result.name or "", UUID(bytes=result.topic_id)
                topic = topic_id if topic_id in wanted else name
                error = _error(result.error_code, result.error_message, topic)
                outcomes[topic] = error or name
            return outcomes

        deleted = await self._by_controller(topics, ask)
        self._cluster.metadata.forget(deleted.values())

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """Every topic, by name; ``internal`` ones only when asked for.

        A topic that its broker cannot tell of at the moment is left out.
        """

        async def attempt() -> MetadataResponse:
            return await self._cluster.refresh(None)

        await retrying(attempt, self._cluster.request_timeout)
        topics = sorted(self._cluster.metadata.topics.items())
        return [topic for _, topic in topics if internal or not topic.is_internal]

    async def describe_topic(self, topic: TopicRef) -> TopicDescription:
        """One topic, named or by its id; UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID if none."""
        return (await self.describe_topics([topic]))[topic]

    async def describe_topics(self, topics: Iterable[TopicRef]) -> dict[TopicRef, TopicDescription]:
        """Several topics, by what they were asked for as."""

        async def ask(wanted: list[TopicRef]) -> Outcomes[TopicRef, TopicDescription]:
            request = MetadataRequest(
                topics=[
                    MetadataRequestTopic(topic_id=topic.bytes, name=None)
                    if isinstance(topic, UUID)
                    else MetadataRequestTopic(name=topic)
                    for topic in wanted
                ],
                allow_auto_topic_creation=False,
            )
            response: MetadataResponse = await self._cluster.ask_any(ApiKey.METADATA, request)
            outcomes: Outcomes[TopicRef, TopicDescription] = {}
            for found in response.topics:
                topic_id = UUID(bytes=found.topic_id)
                topic = topic_id if topic_id in wanted else found.name or ""
                try:
                    outcomes[topic] = describe(found)
                except ApiError as error:
                    outcomes[topic] = error
            return outcomes

        missing = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
        timeout = self._cluster.request_timeout
        return succeeded(await settle(topics, ask, timeout, final=missing))

    async def create_partitions(
        self,
        topic: str,
        total: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Let a topic have ``total`` partitions, more than it has.

        ``assignments``: the brokers of each new partition, by default chosen by the controller.
        ``validate_only``: only say whether it could be done.
        """
        chosen = None
        if assignments is not None:
            chosen = [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignments]

        async def ask(_: list[str]) -> Outcomes[str, None]:
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=topic, count=total, assignments=chosen)],
                timeout_ms=self._server_timeout_ms,
                validate_only=validate_only,
            )
            response: CreatePartitionsResponse = await self._cluster.ask_controller(
                ApiKey.CREATE_PARTITIONS, request
            )
            return {
                result.name: _error(result.error_code, result.error_message, result.name)
                for result in response.results
            }

        await self._by_controller([topic], ask)
        self._cluster.metadata.forget([topic])


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in enumerate(topic.assignments or ())
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.config.items()
        ],
    )


def _created(result: CreatableTopicResult) -> CreatedTopic | ApiError:
    return _error(result.error_code, result.error_message, result.name) or CreatedTopic(
        name=result.name,
        topic_id=UUID(bytes=result.topic_id or ZERO_UUID),
        partitions=result.num_partitions,
        replication_factor=result.replication_factor,
    )


def _error(code: int, message: str | None, topic: TopicRef) -> ApiError | None:
    return api_error(code, message, of=f"topic {topic}") if code else None
