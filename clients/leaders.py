"""Asking the leaders of partitions, wherever they have moved."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from qbus.errors import ApiError, ErrorCode

from .cluster import Cluster, retrying
from .types import TopicPartition

T = TypeVar("T")

AskLeader = Callable[[int, list[TopicPartition]], Awaitable[dict[TopicPartition, T]]]
"""Takes a broker's id and the partitions that it leads; raises ApiError if one was refused."""


async def asking_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition], ask: AskLeader[T]
) -> dict[TopicPartition, T]:
    """The answers for all ``partitions``, each of its leader, repeated on retriable errors.

    But a topic or partition that does not exist is an error at once.
    """
    wanted = list(partitions)
    topics = {partition.topic for partition in wanted}

    async def attempt() -> dict[TopicPartition, T]:
        try:
            await cluster.need(topics)
            answers = await asyncio.gather(
                *(ask(node, led) for node, led in by_leader(cluster, wanted).items())
            )
        except ApiError:
            cluster.metadata.forget(topics)
            raise
        return {partition: found for answer in answers for partition, found in answer.items()}

    missing = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    return await retrying(attempt, cluster.request_timeout, final=missing)


def by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    """``partitions`` under their leaders' ids; raises as ``ClusterMetadata.leader`` does."""
    grouped: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        leader = cluster.metadata.leader(partition.topic, partition.partition)
        grouped.setdefault(leader, []).append(partition)
    return grouped
