"""Requests to the leaders of partitions and to the coordinators of groups, wherever they move."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from qbus.errors import ApiError, ErrorCode

from ..types import TopicPartition
from .cluster import Cluster
from .retry import Outcomes, ask_each, results_or_raise, retry_each, retrying

T = TypeVar("T")

AskLeader = Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, T | ApiError]]]
"""Takes a broker's id and the partitions that it leads; returns or raises what was refused."""

COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


async def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: AskLeader[T],
    timeout: float | None = None,
) -> dict[TopicPartition, T]:
    """The answers for all ``partitions``, each of its leader, repeated on retriable errors.

    For ``timeout`` seconds, by default the cluster's ``request_timeout``. But a topic or partition
    that does not exist is an error at once. Raises :class:`~qbus.clients.PartialFailure` when there
    are answers for some only.
    """

    async def attempt(wanted: list[TopicPartition]) -> Outcomes[TopicPartition, T]:
        topics = {partition.topic for partition in wanted}
        await cluster.need(topics)
        outcomes: Outcomes[TopicPartition, T] = {}
        led: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            try:
                led.setdefault(cluster.metadata.leader(*partition), []).append(partition)
            except ApiError as error:
                outcomes[partition] = error
        answers = await ask_each(led, lambda node: ask(node, led[node]))
        for node, answer in answers.items():
            if isinstance(answer, ApiError):
                outcomes |= dict.fromkeys(led[node], answer)
            else:
                outcomes |= answer
        cluster.metadata.forget(
            partition.topic for partition, found in outcomes.items() if isinstance(found, ApiError)
        )
        return outcomes

    patience = cluster.request_timeout if timeout is None else timeout
    return results_or_raise(await retry_each(partitions, attempt, patience, final=_MISSING))


async def retry_at_coordinator(
    cluster: Cluster, group: str, attempt: Callable[[], Awaitable[T]]
) -> T:
    """What ``attempt`` returns, repeated on retriable errors and wherever the coordinator moved."""

    async def of_the_current_one() -> T:
        try:
            return await attempt()
        except ApiError as error:
            if error.code in COORDINATOR_MOVED:
                cluster.forget_coordinator(group)
            raise

    return await retrying(of_the_current_one, cluster.request_timeout)
