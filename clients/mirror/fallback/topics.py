"""Creates the topics of a target that is no Qbus, and enlarges them with those of the source."""

from qbus.errors import ApiError, ErrorCode

from ...admin import Admin
from ...net.cluster import Cluster
from ..config import LinkConfig
from ..glance import Glance
from ..routes import Topic, TopicRoute, route_of
from ..topics import copied, read_topics

_OURS = "qbus."


async def prepare(
    config: LinkConfig, source: Cluster, target: Cluster, glance: Glance
) -> dict[str, TopicRoute]:
    """Create or enlarge the target's topics; return the routes by the topics' names at the source.

    ``glance`` learns what they were compared with.

    Raises :class:`~qbus.errors.ApiError`.
    """
    admin = Admin.over(target)
    here = await read_topics(source, config.selection.__contains__)
    routes = {topic.name: found for topic in here.values() if (found := route_of(config, topic))}
    there = {topic.name: len(topic.partitions) for topic in await admin.list_topics()}
    for name, found in routes.items():
        partitions = there.get(found.target_topic)
        if partitions is None:
            await _create(config, target, found, here[name])
        elif partitions < found.partitions:
            await admin.create_partitions(found.target_topic, found.partitions)
    glance.compared(here)
    return routes


async def _create(config: LinkConfig, target: Cluster, found: TopicRoute, topic: Topic) -> None:
    brokers = max(len(target.metadata.nodes), 1)
    wanted = copied(config, topic)
    try:
        await Admin.over(target).create_topic(
            found.target_topic,
            partitions=found.partitions,
            replication_factor=config.topics_at_target.replication_factor
            or min(topic.replicas, brokers),
            config={key: wanted[key] for key in wanted if not key.startswith(_OURS)},
        )
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another process was first
            raise
