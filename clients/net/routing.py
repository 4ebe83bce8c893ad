"""Requests to partition leaders and group coordinators, repeated wherever they move."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from qbus.errors import ApiError, ErrorCode

from ..types import TopicPartition
from .cluster import Cluster, CoordinatorKind
from .retry import Outcomes, ask_each, results_or_raise, retry_each, retrying

T = TypeVar("T")

AskLeader = Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, T | ApiError]]]
"""Asks the broker with this id for the partitions it leads; returns or raises their errors."""

COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


async def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: AskLeader[T],
    timeout: float | None = None,
) -> dict[TopicPartition, T]:
    """Return the answer for each partition from its leader, repeated on retriable errors.

    Retries for ``timeout`` seconds, by default the cluster's ``request_timeout``. A missing topic
    or partition is an error at once. Raises :class:`~qbus.clients.PartialFailure` when only some
    partitions were answered.
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

    return results_or_raise(
        await retry_each(cluster, partitions, attempt, timeout, final=_MISSING, subject=_name)
    )


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


async def retry_at_coordinator(
    cluster: Cluster,
    group: str,
    attempt: Callable[[], Awaitable[T]],
    kind: CoordinatorKind = CoordinatorKind.GROUP,
) -> T:
    """Return what ``attempt`` returns, repeated on retriable errors and when the coordinator
    moved.
    """

    async def forgetting() -> T:
        try:
            return await attempt()
        except ApiError as error:
            if error.code in COORDINATOR_MOVED:
                cluster.forget_coordinator(group, kind)
            raise

    return await retrying(cluster, f"{kind.owner} {group}", forgetting)
