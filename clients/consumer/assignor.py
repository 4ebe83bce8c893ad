"""The range assignor: for each topic, neighbouring partitions to each member that wants it.

The same as Kafka's RangeAssignor, so that members of other clients agree with ours.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..types import TopicPartition

RANGE = "range"


class Candidate(NamedTuple):
    """A member and the topics that it wants."""

    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]


def assign_ranges(
    members: Iterable[Candidate], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """The partitions of each member, by its id; static members come first."""
    ordered = sorted(members, key=_rank)
    assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in ordered}
    for topic, count in sorted(partition_counts.items()):
        wanting = [member for member in ordered if topic in member.topics]
        if not wanting:
            continue
        each, more = divmod(count, len(wanting))
        start = 0
        for place, member in enumerate(wanting):
            end = start + each + (place < more)
            assigned[member.member_id] += [TopicPartition(topic, i) for i in range(start, end)]
            start = end
    return assigned


def _rank(member: Candidate) -> tuple[bool, str]:
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member.member_id
