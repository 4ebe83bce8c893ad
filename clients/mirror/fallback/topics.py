"""The topics of a target that is no Qbus: created, and grown with those of the source."""

from qbus.errors import ApiError, ErrorCode

from ...admin import Admin
from ..config import LinkConfig
from ..looking import topics_of
from ..ways import Topic, Way, way

_OURS = "qbus."


async def prepare(config: LinkConfig, source: Admin, target: Admin) -> dict[str, Way]:
    """See to it that the target has every topic that is mirrored; the ways, by names at the source.

    Raises :class:`~qbus.errors.ApiError`.
    """
    here = {topic.name: topic for topic in await topics_of(source)}
    ways = {topic.name: found for topic in here.values() if (found := way(config, topic))}
    there = {topic.name: len(topic.partitions) for topic in await target.list_topics()}
    for name, found in ways.items():
        partitions = there.get(found.target_topic)
        if partitions is None:
            await _create(config, target, found, here[name])
        elif partitions < found.partitions:
            await target.create_partitions(found.target_topic, found.partitions)
    return ways


async def _create(config: LinkConfig, target: Admin, found: Way, topic: Topic) -> None:
    wanted = config.topics_at_target
    copied = topic.config if wanted.copy_config else {}
    try:
        await target.create_topic(
            found.target_topic,
            partitions=found.partitions,
            replication_factor=wanted.replication_factor or -1,
            config={
                key: value
                for key, value in copied.items()
                if key not in wanted.config_exclude and not key.startswith(_OURS)
            },
        )
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another process was first
            raise
