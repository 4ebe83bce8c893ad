"""Topics, and the cluster that holds them."""

from collections.abc import Mapping

from qbus.wire import ApiKey
from qbus.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from qbus.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from qbus.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

from ..cluster import Cluster, retrying
from ..errors import check
from ..metadata import ClusterMetadata
from ..types import ClusterDescription, TopicDescription


async def describe_cluster(cluster: Cluster) -> ClusterDescription:
    """The brokers and the controller."""

    async def attempt() -> ClusterDescription:
        await cluster.refresh(())
        known = cluster.metadata
        nodes = tuple(node for _, node in sorted(known.nodes.items()))
        return ClusterDescription(known.cluster_id, known.controller_id, nodes)

    return await retrying(attempt, cluster.request_timeout)


async def create(
    cluster: Cluster,
    name: str,
    partitions: int,
    replication_factor: int,
    config: Mapping[str, str],
    validate_only: bool,
) -> None:
    """Create a topic."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                configs=[CreatableTopicConfig(name=k, value=v) for k, v in config.items()],
            )
        ],
        timeout_ms=_milliseconds(cluster),
        validate_only=validate_only,
    )

    async def attempt() -> None:
        response: CreateTopicsResponse = await cluster.ask_controller(ApiKey.CREATE_TOPICS, request)
        for topic in response.topics:
            check(topic.error_code, topic.error_message, of=f"topic {name}")

    await retrying(attempt, cluster.request_timeout)


async def delete(cluster: Cluster, name: str) -> None:
    """Delete a topic."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name)], timeout_ms=_milliseconds(cluster)
    )
    # "There is no such topic" counts as retriable elsewhere; here it is the answer.
    response: DeleteTopicsResponse = await cluster.ask_controller(ApiKey.DELETE_TOPICS, request)
    for topic in response.responses:
        check(topic.error_code, topic.error_message, of=f"topic {name}")
    cluster.metadata.forget([name])


async def list_all(cluster: Cluster, internal: bool) -> list[TopicDescription]:
    """Every topic, by name."""

    async def attempt() -> list[TopicDescription]:
        everything = ClusterMetadata()
        everything.update(await cluster.refresh(None))
        return [
            topic
            for _, topic in sorted(everything.topics.items())
            if internal or not topic.is_internal
        ]

    return await retrying(attempt, cluster.request_timeout)


async def describe(cluster: Cluster, name: str) -> TopicDescription:
    """One topic."""
    await retrying(lambda: cluster.refresh([name]), cluster.request_timeout)
    return cluster.metadata.topic(name)


async def create_partitions(cluster: Cluster, topic: str, total: int) -> None:
    """Let a topic have ``total`` partitions."""
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=total, assignments=None)],
        timeout_ms=_milliseconds(cluster),
    )
    response: CreatePartitionsResponse = await cluster.ask_controller(
        ApiKey.CREATE_PARTITIONS, request
    )
    for result in response.results:
        check(result.error_code, result.error_message, of=f"topic {topic}")
    cluster.metadata.forget([topic])


def _milliseconds(cluster: Cluster) -> int:
    return int(cluster.request_timeout * 1000)
