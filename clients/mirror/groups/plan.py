"""Which offsets a group gets at the target. Pure.

A record has the same offset in both IDCs, so that an offset is carried over as it is: but never one
that is ahead of what the target's consumers can see, since a group that began there would skip what
comes in between.
"""

from collections.abc import Mapping

from ...types import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def translate(
    committed: Offsets, counterparts: Mapping[str, str]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """``committed`` at the source by the names at the target, of the topics that have one there.

    Leader epochs are left behind: each cluster counts its own.
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
    """What is to be committed at the target, all by the names there.

    committed: what the group has at the source. present: what it has at the target.
    high_watermarks: how far the target's consumers see; a partition without one gets nothing.
    backwards: whether the group may be set back to where it is at the source.
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
