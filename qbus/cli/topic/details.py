"""Descriptions of topics, gathered from several requests."""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from qbus.cli.documents import topic_description
from qbus.cli.output import Document
from qbus.cli.topic.health import EVERYTHING, Filters
from qbus.cli.topic.replicas import Replicas, damaged, reported_replicas
from qbus.clients import PartialFailure
from qbus.clients.types import EARLIEST, LATEST, ConfigKind, TopicPartition
from qbus.errors import ApiError

if TYPE_CHECKING:
    from qbus.clients import Admin
    from qbus.clients.types import ConfigEntry, TopicDescription

T = TypeVar("T")


async def describe_topics(
    admin: "Admin", names: Sequence[str], filters: Filters = EVERYTHING
) -> list[Document]:
    """Describe the topics called ``names``, or every topic if there are no names.

    Only partitions that ``filters`` select, and topics that have some, are described. Offsets and
    sizes that no broker reports now are left out.
    """
    topics: Sequence[TopicDescription] = (
        [*(await admin.describe_topics(names)).values()] if names else await admin.list_topics()
    )
    configs = await admin.describe_configs((ConfigKind.TOPIC, topic.name) for topic in topics)
    topics = [
        chosen
        for topic in topics
        if (chosen := _filtered(topic, configs[ConfigKind.TOPIC, topic.name], filters)).partitions
    ]
    if not topics:
        return []
    led = [
        TopicPartition(topic.name, partition.index)
        for topic in topics
        for partition in topic.partitions
        if partition.leader >= 0
    ]
    starts = await _known(admin.list_offsets(dict.fromkeys(led, EARLIEST)))
    ends = await _known(admin.list_offsets(dict.fromkeys(led, LATEST)))
    replicas = await _replicas(admin, topics)
    sizes, problems = _sizes(replicas)
    unreadable = damaged(replicas)
    eligible = await _known(admin.eligible_leaders(topic.name for topic in topics))
    delaying = {
        name
        for (_, name), config in configs.items()
        if any(entry.name == "qbus.delay.enable" and entry.value == "true" for entry in config)
    }
    held = [place for place in led if place.topic in delaying]
    delayed = await _known(admin.describe_delayed(held)) if held else {}
    return [
        topic_description(
            topic,
            configs[ConfigKind.TOPIC, topic.name],
            {
                place.partition: (starts[place].offset, ends[place].offset)
                for place in _places(topic)
                if place in starts and place in ends
            },
            {place.partition: sizes[place] for place in _places(topic) if place in sizes},
            {place.partition: eligible[place] for place in _places(topic) if place in eligible},
            {place.partition: delayed[place] for place in _places(topic) if place in delayed}
            if topic.name in delaying
            else None,
            {place.partition: problems[place] for place in _places(topic) if place in problems},
            [entry for entry in unreadable if entry["topic"] == topic.name],
        )
        for topic in topics
    ]


def _filtered(
    topic: "TopicDescription", config: Iterable["ConfigEntry"], filters: Filters
) -> "TopicDescription":
    """The topic with only the partitions that ``filters`` select."""
    values = {entry.name: entry.value for entry in config}
    min_isr = int(values.get("min.insync.replicas") or 1)
    kept = tuple(part for part in topic.partitions if filters.selects(part, min_isr))
    return replace(topic, partitions=kept)


def _places(topic: "TopicDescription") -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition.index) for partition in topic.partitions]


async def _known(answers: Awaitable[Mapping[TopicPartition, T]]) -> Mapping[TopicPartition, T]:
    try:
        return await answers
    except PartialFailure as error:
        return error.results
    except ApiError:
        return {}


async def _replicas(admin: "Admin", topics: Iterable["TopicDescription"]) -> Replicas:
    described = {place for topic in topics for place in _places(topic)}
    nodes = {node for topic in topics for part in topic.partitions for node in part.replicas}
    return {
        node: [one for one in held if TopicPartition(one.topic, one.partition) in described]
        for node, held in (await reported_replicas(admin, nodes)).items()
    }


def _sizes(
    replicas: Replicas,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, dict[int, str]]]:
    """Bytes on disk of the largest replica, and why brokers do not compact theirs, by broker."""
    sizes: dict[TopicPartition, int] = {}
    problems: dict[TopicPartition, dict[int, str]] = {}
    for node, held in replicas.items():
        for replica in held:
            key = TopicPartition(replica.topic, replica.partition)
            sizes[key] = max(replica.size, sizes.get(key, 0))
            if replica.compaction_problem:
                problems.setdefault(key, {})[node] = replica.compaction_problem
    return sizes, problems
