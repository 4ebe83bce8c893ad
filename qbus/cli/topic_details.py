"""Everything there is to say about topics, gathered from several requests."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qbus.clients.types import EARLIEST, LATEST, ConfigKind, TopicPartition
from qbus.errors import ApiError

from .documents import Document, topic_description

if TYPE_CHECKING:
    from qbus.clients import Admin
    from qbus.clients.types import TopicDescription

Sizes = dict[TopicPartition, int]
Offsets = dict[int, tuple[int, int]]


async def describe_topics(admin: "Admin", names: Sequence[str]) -> list[Document]:
    """Describe the topics called ``names``, or every topic when there are none."""
    topics = (
        [await admin.describe_topic(name) for name in names] if names else await admin.list_topics()
    )
    sizes = await _sizes(admin)
    return [await _describe(admin, topic, sizes) for topic in topics]


async def _describe(admin: "Admin", topic: "TopicDescription", sizes: Sizes) -> Document:
    config = await admin.describe_config(ConfigKind.TOPIC, topic.name)
    return topic_description(
        topic,
        config,
        await _offsets(admin, topic),
        {
            partition.index: sizes[TopicPartition(topic.name, partition.index)]
            for partition in topic.partitions
            if TopicPartition(topic.name, partition.index) in sizes
        },
    )


async def _offsets(admin: "Admin", topic: "TopicDescription") -> Offsets:
    """The start and end of each partition that has a leader to tell them."""
    led = [TopicPartition(topic.name, p.index) for p in topic.partitions if p.leader >= 0]
    starts = await admin.list_offsets(dict.fromkeys(led, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(led, LATEST))
    return {key.partition: (starts[key].offset, ends[key].offset) for key in led}


async def _sizes(admin: "Admin") -> Sizes:
    """Bytes on disk: one replica's, the largest. A broker that does not tell is passed over."""
    sizes: Sizes = {}
    try:
        directories = await admin.describe_log_dirs()
    except ApiError:
        return sizes
    for directory in directories:
        for replica in directory.replicas:
            key = TopicPartition(replica.topic, replica.partition)
            sizes[key] = max(replica.size, sizes.get(key, 0))
    return sizes
