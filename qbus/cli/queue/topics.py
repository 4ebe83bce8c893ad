"""The topics that queues are, and what a share group did in them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from qbus.errors import ApiError, ErrorCode
from qbus.jobs import queue_of
from qbus.jobs import topic_of as topic_of_bytes

if TYPE_CHECKING:
    from qbus.cli.output import Document
    from qbus.clients import Admin
    from qbus.clients.admin.types import QueueState

_REPLICAS = 3
_COUNTS = (
    "length",
    "in_flight",
    "delayed",
    "given_up",
    "taken",
    "acknowledged",
    "released",
    "timeouts",
    "dead_letters",
    "dropped",
    "filtered",
    "expired",
)


def topic_of(name: str) -> str:
    """The topic of a queue. Raises click.BadParameter."""
    try:
        return topic_of_bytes(name.encode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from error


async def create_queue(
    admin: "Admin",
    topic: str,
    *,
    partitions: int | None,
    replication_factor: int | None,
    config: dict[str, str],
    is_needed: bool,
) -> "Document":
    """Create the topic of a queue; ``is_needed``: an existing one is an error."""
    from qbus.clients.queue.queue import QUEUE_CONFIG

    created = is_needed or not await _exists(admin, topic)
    if created:
        brokers = len((await admin.describe_cluster()).nodes)
        await admin.create_topic(
            topic,
            partitions=partitions or brokers,
            replication_factor=replication_factor or min(_REPLICAS, brokers),
            config={**QUEUE_CONFIG, **config},
        )
    described = await admin.describe_topic(topic)
    return {"topic": topic, "partitions": len(described.partitions), "created": created}


async def _exists(admin: "Admin", topic: str) -> bool:
    try:
        await admin.describe_topic(topic)
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return False
    return True


async def create_dead_letters(admin: "Admin", topic: str) -> None:
    """Create the topic of dead letters, unless it is there."""
    brokers = len((await admin.describe_cluster()).nodes)
    try:
        await admin.create_topic(topic, partitions=1, replication_factor=min(_REPLICAS, brokers))
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def read_queues(admin: "Admin", names: Sequence[str], group: str) -> list["Document"]:
    """What ``group`` did in queues, or in all topics, by name."""
    places = None
    if names:
        described = await admin.describe_topics(topic_of(name) for name in names)
        places = [
            (found.name, partition.index)
            for found in described.values()
            for partition in found.partitions
        ]
    states = await admin.describe_queues(group, places)
    by_topic: dict[str, list[tuple[int, QueueState]]] = {}
    for (topic, index), state in sorted(states.items()):
        by_topic.setdefault(str(topic), []).append((index, state))
    return [_document(topic, group, found) for topic, found in by_topic.items()]


async def offline_partitions(admin: "Admin") -> list[str]:
    """The partitions without a leader, of which no broker knows what a group did there."""
    return [
        f"{topic.name}-{partition.index}"
        for topic in await admin.list_topics()
        for partition in topic.partitions
        if partition.leader < 0
    ]


def _document(
    topic: str, group: str, partitions: Iterable[tuple[int, "QueueState"]]
) -> dict[str, Any]:
    documents = [
        {
            "partition": index,
            "start_offset": None if state.start_offset < 0 else state.start_offset,
            "oldest_ms": state.oldest_ms,
            **{name: getattr(state, name) for name in _COUNTS},
        }
        for index, state in partitions
    ]
    ages = [one["oldest_ms"] for one in documents if one["oldest_ms"] is not None]
    return {
        "queue": queue_of(topic).decode(errors="replace"),
        "topic": topic,
        "group": group,
        "oldest_ms": max(ages, default=None),
        **{name: sum(one[name] for one in documents) for name in _COUNTS},
        "partitions": documents,
    }
