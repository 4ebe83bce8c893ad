"""The lag of a target that is no Qbus: by the last record of each of its partitions."""

from qbus.errors import ApiError

from ...admin import Admin
from ...net.cluster import Cluster
from ...net.retry import ask_each
from ...offsets import list_offsets
from ...types import EARLIEST, LATEST, TopicPartition
from ..config import LinkConfig
from ..routes import TopicRoute, route_of
from ..status import PartitionState, PartitionStatus
from ..topics import read_topics
from .partition import ReproducedPartition
from .resuming import find_resume
from .stamp import origin_of


async def probe_reproduced(
    config: LinkConfig, source: Cluster, target: Cluster
) -> list[PartitionStatus]:
    """Return the status of every reproduced partition; raises :class:`~qbus.errors.ApiError`."""
    here = await read_topics(source, config.selection.__contains__)
    routes = [found for topic in here.values() if (found := route_of(config, topic)) is not None]
    there = {topic.name: len(topic.partitions) for topic in await Admin.over(target).list_topics()}
    partitions = {
        TopicPartition(found.topic, index): found
        for found in routes
        for index in range(found.partitions)
    }
    admin = Admin.over(source)
    starts = await list_offsets(source, dict.fromkeys(partitions, EARLIEST))
    ends = await list_offsets(source, dict.fromkeys(partitions, LATEST), committed=True)
    committed = await admin.committed_offsets(config.group, partitions)

    async def measure(where: TopicPartition) -> PartitionStatus:
        found = partitions[where]
        if where.partition >= there.get(found.target_topic, 0):
            return _untouched(found, where.partition)
        target_partition = TopicPartition(found.target_topic, where.partition)
        reproduced = ReproducedPartition(where, target_partition, found.provenance.topic_id)
        held = await find_resume(target, reproduced.target, origin_of(config.source, where.topic))
        known = committed[where].offset if where in committed else None
        reproduced.resolve(held, known, starts[where].offset, ends[where].offset)
        return reproduced.status(0)

    looked = await ask_each(partitions, measure)
    return [
        _untouched(partitions[where], where.partition, str(found))
        if isinstance(found, ApiError)
        else found
        for where, found in sorted(looked.items())
    ]


def _untouched(
    found: TopicRoute, partition: int, error: str = "the target does not have it yet"
) -> PartitionStatus:
    return PartitionStatus(
        topic=found.topic,
        target_topic=found.target_topic,
        partition=partition,
        state=PartitionState.WAITING,
        error=error,
    )
