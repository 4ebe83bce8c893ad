"""Descriptions of topics, gathered from several requests."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from qbus.cli.documents import topic_description
from qbus.cli.failing_directories import PATIENCE_S, directories_of, failing
from qbus.cli.failures import describe
from qbus.cli.output import Document
from qbus.cli.topic.health import EVERYTHING, Filters
from qbus.cli.topic.replicas import damaged
from qbus.clients import PartialFailure
from qbus.clients.types import EARLIEST, LATEST, ConfigKind, TopicPartition
from qbus.errors import ApiError

if TYPE_CHECKING:
    from qbus.clients import Admin
    from qbus.clients.admin.types import DelayedRecords
    from qbus.clients.types import (
        ConfigEntry,
        LogDir,
        OffsetAndTimestamp,
        PartitionDescription,
        TopicDescription,
    )

T = TypeVar("T")


async def describe_topics(
    admin: "Admin", names: Sequence[str], filters: Filters = EVERYTHING
) -> list[Document]:
    """Describe the topics called ``names``, or every topic if there are no names.

    Only partitions that ``filters`` select, and topics that have some, are described. Offsets and
    sizes that no broker reports now are left out; why partitions cannot be read is in the document.
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
        if not _is_offline(partition)
    ]
    starts, ends, storage, eligible = await asyncio.gather(
        _offsets(admin, dict.fromkeys(led, EARLIEST)),
        _offsets(admin, dict.fromkeys(led, LATEST)),
        _storage(admin, topics),
        _known(admin.eligible_leaders(topic.name for topic in topics)),
    )
    delaying = {
        name
        for (_, name), config in configs.items()
        if any(entry.name == "qbus.delay.enable" and entry.value == "true" for entry in config)
    }
    delayed = await _delayed(admin, [p for p in starts.found if p.topic in delaying])
    return [
        topic_description(
            topic,
            configs[ConfigKind.TOPIC, topic.name],
            {
                place.partition: (starts.found[place].offset, ends.found[place].offset)
                for place in _places(topic)
                if place in starts.found and place in ends.found
            },
            _by_partition(topic, storage.sizes),
            _by_partition(topic, eligible),
            delayed=_by_partition(topic, delayed) if topic.name in delaying else None,
            uncompacted=_by_partition(topic, storage.uncompacted),
            unread={
                part.index: found
                for part in topic.partitions
                if (found := _why_unread(topic.name, part, starts.missing | ends.missing))
            },
            damaged=[entry for entry in storage.damaged if entry["topic"] == topic.name],
            failing=storage.failing(topic),
        )
        for topic in topics
    ]


def _by_partition(topic: "TopicDescription", found: Mapping[TopicPartition, T]) -> dict[int, T]:
    return {place.partition: found[place] for place in _places(topic) if place in found}


def _why_unread(
    topic: str, partition: "PartitionDescription", errors: Mapping[TopicPartition, str]
) -> str:
    """Why a partition cannot be read now; empty: it can."""
    if _is_offline(partition):
        nodes = ", ".join(map(str, partition.offline_replicas))
        return f"it has no leader; offline on broker {nodes}"
    return errors.get(TopicPartition(topic, partition.index), "")


def _is_offline(partition: "PartitionDescription") -> bool:
    """Whether it has no leader, and no replica that could lead soon."""
    return partition.leader < 0 and set(partition.offline_replicas) >= set(partition.replicas)


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


class _Offsets(NamedTuple):
    """Offsets of partitions, and why those of the others are not known."""

    found: Mapping[TopicPartition, "OffsetAndTimestamp"]
    missing: dict[TopicPartition, str]


async def _offsets(admin: "Admin", times: Mapping[TopicPartition, int]) -> _Offsets:
    try:
        found = await admin.list_offsets(times, timeout_ms=int(PATIENCE_S * 1000))
    except PartialFailure as error:
        reasons = {place: describe(why) for place, why in error.errors.items()}
        return _Offsets(error.results, reasons)
    except ApiError as error:
        return _Offsets({}, dict.fromkeys(times, describe(error)))
    return _Offsets(found, {})


async def _delayed(
    admin: "Admin", places: Sequence[TopicPartition]
) -> Mapping[TopicPartition, "DelayedRecords"]:
    return await _known(admin.describe_delayed(places)) if places else {}


class _Storage(NamedTuple):
    """What brokers report of their data directories.

    sizes: bytes on disk of the largest replica.
    uncompacted: why brokers do not compact their replicas, by broker.
    damaged: batches that cannot be read.
    directories: those that are offline, or full.
    """

    sizes: dict[TopicPartition, int]
    uncompacted: dict[TopicPartition, dict[int, str]]
    damaged: list[Document]
    directories: "list[LogDir]"

    def failing(self, topic: "TopicDescription") -> "list[LogDir]":
        """The failing directories of brokers that have replicas of ``topic``."""
        nodes = {node for part in topic.partitions for node in part.replicas}
        return [directory for directory in self.directories if directory.node_id in nodes]


async def _storage(admin: "Admin", topics: Iterable["TopicDescription"]) -> _Storage:
    nodes = sorted(
        {node for topic in topics for part in topic.partitions for node in part.replicas}
    )
    directories = await directories_of(admin, nodes)
    described = {place for topic in topics for place in _places(topic)}
    unreadable = [
        entry
        for entry in damaged(directories)
        if TopicPartition(entry["topic"], entry["partition"]) in described
    ]
    storage = _Storage({}, {}, unreadable, failing(directories))
    for directory in directories:
        for replica in directory.replicas:
            key = TopicPartition(replica.topic, replica.partition)
            storage.sizes[key] = max(replica.size, storage.sizes.get(key, 0))
            if replica.compaction_problem:
                problems = storage.uncompacted.setdefault(key, {})
                problems[directory.node_id] = replica.compaction_problem
    return storage
