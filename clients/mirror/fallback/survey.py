"""How far a target is that is no Qbus: as the last record of each of its partitions says."""

from qbus.errors import ApiError

from ...admin import Admin
from ...net.cluster import Cluster
from ...net.retry import each
from ...offsets import list_offsets
from ...types import EARLIEST, LATEST, TopicPartition
from ..config import LinkConfig
from ..routes import Way, way
from ..status import PartitionState, PartitionStatus
from ..topics import read_topics
from .copy import Copy
from .resuming import find_resume
from .stamp import origin_of


async def survey_reproduced(
    config: LinkConfig, source: Cluster, target: Cluster
) -> list[PartitionStatus]:
    """Every partition that is to be produced anew; raises :class:`~qbus.errors.ApiError`."""
    here = await read_topics(source, config.selection.__contains__)
    ways = [found for topic in here.values() if (found := way(config, topic)) is not None]
    there = {one.name: len(one.partitions) for one in await Admin.over(target).list_topics()}
    copies = {
        TopicPartition(found.topic, index): found
        for found in ways
        for index in range(found.partitions)
    }
    admin = Admin.over(source)
    starts = await list_offsets(source, dict.fromkeys(copies, EARLIEST))
    ends = await list_offsets(source, dict.fromkeys(copies, LATEST), committed=True)
    committed = await admin.committed_offsets(config.group, copies)

    async def look(where: TopicPartition) -> PartitionStatus:
        found = copies[where]
        if where.partition >= there.get(found.target_topic, 0):
            return _untouched(found, where.partition)
        target_partition = TopicPartition(found.target_topic, where.partition)
        copy = Copy(where, target_partition, found.provenance.topic_id)
        held = await find_resume(target, copy.target, origin_of(config.source, where.topic))
        known = committed[where].offset if where in committed else None
        copy.place(held, known, starts[where].offset, ends[where].offset)
        return copy.status(0)

    looked = await each(copies, look)
    return [
        _untouched(copies[where], where.partition, str(found))
        if isinstance(found, ApiError)
        else found
        for where, found in sorted(looked.items())
    ]


def _untouched(
    found: Way, partition: int, error: str = "the target does not have it yet"
) -> PartitionStatus:
    return PartitionStatus(
        topic=found.topic,
        target_topic=found.target_topic,
        partition=partition,
        state=PartitionState.WAITING,
        error=error,
    )
