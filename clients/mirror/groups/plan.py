"""Which offsets a group gets at the target. Pure.

A record has the same offset in both datacenters, so an offset is committed as it is; but never one
beyond what the target's consumers can see, for a group that starts there would skip records.

A topic and all its mirrors are counterparts: ``orders`` at A is ``A.orders`` at B and at C. So a
group may move from any of them to any other.
"""

from collections.abc import Iterable, Mapping

from ...types import OffsetAndMetadata, TopicPartition
from ..provenance import Provenance
from ..routes import Topic

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def counterparts(
    source_idc: str, source: Iterable[Topic], target_idc: str, target: Iterable[Topic]
) -> dict[str, str]:
    """Return the names at the target, by those at the source, of the topics that both have."""
    there = {_identity(target_idc, topic): topic.name for topic in target}
    here = {topic.name: _identity(source_idc, topic) for topic in source if not topic.is_internal}
    return {name: there[identity] for name, identity in here.items() if identity in there}


def translate(
    committed: Offsets, counterparts: Mapping[str, str]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets ``committed`` at the source under the topics' names at the target.

    Topics without a counterpart are left out, and leader epochs: each cluster counts its own.
    """
    return {
        TopicPartition(counterparts[topic], index): OffsetAndMetadata(at.offset, at.metadata)
        for (topic, index), at in committed.items()
        if topic in counterparts
    }


def plan(
    committed: Offsets,
    present: Offsets,
    high_watermarks: Mapping[TopicPartition, int],
    *,
    backwards: bool = False,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets to commit at the target; all names are those at the target.

    committed: the group's offsets at the source. present: its offsets at the target.
    high_watermarks: those of the target; a partition without one gets nothing.
    backwards: whether the group may be set back to its offset at the source.
    """
    changes = {}
    for partition, at in committed.items():
        if partition not in high_watermarks:
            continue
        wanted = at._replace(offset=min(at.offset, high_watermarks[partition]))
        there = present.get(partition)
        if (
            there is None
            or wanted.offset > there.offset
            or (backwards and wanted.offset != there.offset)
        ):
            changes[partition] = wanted
    return changes


def _identity(idc: str, topic: Topic) -> tuple[str, str]:
    """Return a topic's name in other datacenters, and its id where it is written."""
    known = Provenance.of(topic.config)
    if known is not None:
        return topic.name, known.topic_id
    return f"{idc}.{topic.name}", str(topic.topic_id) if topic.topic_id.int else ""
