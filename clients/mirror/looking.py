"""Looking at a cluster: its topics, and what was set for each of them."""

from ..admin import Admin
from ..types import ConfigKind, ConfigSource
from .ways import Topic


async def topics_of(admin: Admin) -> list[Topic]:
    """Every topic that is no internal one; raises :class:`~qbus.errors.ApiError`."""
    described = await admin.list_topics()
    configs = await admin.describe_configs((ConfigKind.TOPIC, topic.name) for topic in described)
    return [
        Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=len(topic.partitions),
            config={
                entry.name: entry.value
                for entry in configs[ConfigKind.TOPIC, topic.name]
                if entry.source is ConfigSource.TOPIC and entry.value is not None
            },
        )
        for topic in described
    ]
