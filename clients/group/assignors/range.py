"""The range assignor: neighbouring partitions of each topic to each member that wants it.

Where replicas are in some racks only, partitions go to members in those racks first, as far as the
sizes of the ranges allow; topics with the same members and number of partitions are divided alike
(KIP-881).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

from ...types import TopicPartition
from .base import (
    Assignments,
    Assignor,
    Candidate,
    Topics,
    in_order,
    java_order,
    partitions_of,
    should_match_racks,
)


class RangeAssignor(Assignor):
    """Assigns as Kafka's RangeAssignor does: the same result under any leader."""

    name = "range"

    def assign(self, members: Sequence[Candidate], topics: Topics) -> Assignments:
        """Part each topic by itself."""
        assigned: Assignments = {member.member_id: [] for member in members}
        ordered = in_order(members)
        shares = [
            _Share(topic, topics, [m for m in ordered if topic in m.subscription.topics], assigned)
            for topic in sorted(topics, key=java_order)
        ]
        if any(share.should_match_racks for share in shares):
            _match_racks(shares)
        for share in shares:
            share.fill(lambda _member, _partition: True)
        for partitions in assigned.values():
            partitions.sort(key=lambda partition: (java_order(partition.topic), partition[1]))
        return assigned


class _Share:
    """One topic: its partitions, and how many each member may have."""

    def __init__(
        self, topic: str, topics: Topics, members: list[Candidate], assigned: Assignments
    ) -> None:
        self.topic = topic
        self.members = members
        self.racks = topics[topic]
        readers = {member.rack for member in members if member.rack is not None}
        self.has_racks = bool(readers)
        self.should_match_racks = should_match_racks(readers, self.racks)
        self._assigned = assigned
        self._counts = dict.fromkeys((member.member_id for member in members), 0)
        self._free = dict.fromkeys(partitions_of(topic, topics))
        self._least, self._larger = divmod(len(self._free), len(members) or 1)

    def room(self, member: Candidate) -> int:
        """How many partitions the member may still be given."""
        most = self._least + (1 if self._larger > 0 else 0)
        return max(0, most - self._counts[member.member_id])

    def is_near(self, member: Candidate, partition: TopicPartition) -> bool:
        """Whether there is a replica where the member runs (anywhere, if it does not say)."""
        return member.rack is None or member.rack in self.racks[partition.partition]

    def give(self, member: Candidate, partitions: Sequence[TopicPartition]) -> None:
        """Assign partitions to the member, which has room for them."""
        self._assigned[member.member_id] += partitions
        self._counts[member.member_id] += len(partitions)
        if partitions and self._counts[member.member_id] > self._least:
            self._larger -= 1
        for partition in partitions:
            del self._free[partition]

    def fill(self, may_have: Callable[[Candidate, TopicPartition], bool]) -> None:
        """Give each member in turn the first partitions that it may have, as many as it can."""
        for member in self.members:
            wanted = [partition for partition in self._free if may_have(member, partition)]
            self.give(member, wanted[: self.room(member)])


def _match_racks(shares: Sequence[_Share]) -> None:
    """Assign what can be read nearby."""
    alike: defaultdict[tuple[tuple[str, ...], int], list[_Share]] = defaultdict(list)
    for share in shares:
        if share.has_racks:
            ids = tuple(member.member_id for member in share.members)
            alike[ids, len(share.racks)].append(share)
    for group in alike.values():
        if len(group) > 1:
            _match_racks_together(group)
        elif group[0].should_match_racks:
            group[0].fill(group[0].is_near)


def _match_racks_together(shares: Sequence[_Share]) -> None:
    """Give the partitions with the same number to the same member, near to all of them."""
    members = shares[0].members
    for index in range(len(shares[0].racks)):
        for member in members:
            if all(
                share.room(member) > 0 and share.is_near(member, TopicPartition(share.topic, index))
                for share in shares
            ):
                for share in shares:
                    share.give(member, [TopicPartition(share.topic, index)])
                break
