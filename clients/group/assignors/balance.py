"""Sharing partitions out evenly while moving as few of them as that takes.

Members that want the same topics end with numbers that differ by one at most. Where subscriptions
differ, an assignment is as even as it can be when no chain of moves (a partition from a member to
the next, another from that one on) leads from a member to one with two partitions less: the
optimality criterion of semi-matchings (Harvey, Ladner, Lovasz, Tamir: "Semi-matchings for bipartite
graphs and load balancing", 2003). A member that gives something away had more than the average of
those it can reach, so whatever keeps its place in the first step below moves only for balance.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...types import TopicPartition
from .base import Assignments, Candidate, Topics, in_order, partitions_of, should_match_racks
from .claims import Claims


class _Step(NamedTuple):
    """A partition of ``topic`` may go from ``giver`` to the member that this leads to."""

    giver: str
    topic: str


class Balance:
    """An assignment in the making."""

    def __init__(self, members: Sequence[Candidate], topics: Topics, claims: Claims) -> None:
        self._topics = topics
        self._claims = claims
        ordered = in_order(members)
        self._rank = {member.member_id: rank for rank, member in enumerate(ordered)}
        self._wanted = {
            member.member_id: sorted(topics.keys() & set(member.subscription.topics))
            for member in ordered
        }
        self._racks = _racks_that_matter(ordered, topics)
        self._takers: defaultdict[str, list[str]] = defaultdict(list)
        for member_id, wanted in self._wanted.items():
            for topic in wanted:
                self._takers[topic].append(member_id)
        self._held: dict[str, dict[str, set[int]]] = {member_id: {} for member_id in self._rank}
        self._counts = dict.fromkeys(self._rank, 0)

    def found(self) -> Assignments:
        """Keep what members had, give them the rest, and move what has to move."""
        free = self._keep()
        self._fill(free)
        self._level()
        return {
            member_id: [
                TopicPartition(topic, index)
                for topic in sorted(held)
                for index in sorted(held[topic])
            ]
            for member_id, held in self._held.items()
        }

    # Steps.

    def _keep(self) -> list[TopicPartition]:
        """Leave partitions where they are; return those without an owner, or with a distant one."""
        free = []
        for topic in sorted(self._takers, key=lambda topic: (len(self._takers[topic]), topic)):
            for partition in partitions_of(topic, self._topics):
                owner = self._claims.owners.get(partition)
                if owner is not None and self._is_near(owner, partition):
                    self._give(owner, partition)
                else:
                    free.append(partition)
        return free

    def _fill(self, free: Iterable[TopicPartition]) -> None:
        """Give each partition to the member with the fewest, if possible a nearby one."""
        remaining = list(free)
        if self._racks:
            near = set(self._racks.values())
            remaining.sort(key=lambda partition: len(near & self._replicas(partition)))
            share = -(-sum(map(len, self._topics.values())) // len(self._rank))
            remaining = [
                partition for partition in remaining if not self._give_nearby(partition, share)
            ]
        least = {
            topic: _Least(takers, self._counts, self._rank)
            for topic, takers in self._takers.items()
        }
        for partition in remaining:
            taker = least[partition.topic].member()
            for before in self._had(partition):
                if self._counts[before] == self._counts[taker]:
                    taker = before
                    break
            self._give(taker, partition)

    def _give_nearby(self, partition: TopicPartition, share: int) -> bool:
        """Whether a member with less than its share runs beside a replica, and has it now."""
        replicas = self._replicas(partition)
        nearby = [
            member_id
            for member_id in self._takers[partition.topic]
            if self._racks.get(member_id) in replicas and self._counts[member_id] < share
        ]
        if nearby:
            had = self._had(partition)
            taker = min(nearby, key=lambda member: (self._counts[member], member not in had))
            self._give(taker, partition)
        return bool(nearby)

    def _level(self) -> None:
        """Move partitions along chains until no move makes the assignment more even."""
        balanced: set[str] = set()
        while True:
            lowest = min(self._counts.values(), default=0)
            rich = [
                member_id
                for member_id, count in self._counts.items()
                if count >= lowest + 2 and member_id not in balanced
            ]
            if not rich:
                return
            giver = max(rich, key=lambda member: (self._counts[member], self._rank[member]))
            reached = self._reach(giver)
            taker = min(reached, key=lambda member: (self._counts[member], self._rank[member]))
            if self._counts[taker] <= self._counts[giver] - 2:
                self._move_along(reached, taker)
                balanced.clear()
            else:  # members reached from here reach no others
                balanced.add(giver)
                balanced.update(
                    member for member in reached if self._counts[member] <= self._counts[giver]
                )

    def _reach(self, start: str) -> dict[str, _Step | None]:
        """Every member that chains of moves from ``start`` end at, and the last step to each."""
        reached: dict[str, _Step | None] = {start: None}
        crossed: set[str] = set()
        waiting = deque([start])
        while waiting:
            giver = waiting.popleft()
            for topic in sorted(self._held[giver].keys() - crossed):
                crossed.add(topic)
                for taker in self._takers[topic]:
                    if taker not in reached:
                        reached[taker] = _Step(giver, topic)
                        waiting.append(taker)
        return reached

    def _move_along(self, reached: Mapping[str, _Step | None], taker: str) -> None:
        step = reached[taker]
        while step is not None:
            partition = self._cheapest(step, taker)
            held = self._held[step.giver]
            held[step.topic].remove(partition.partition)
            if not held[step.topic]:
                del held[step.topic]
            self._counts[step.giver] -= 1
            self._give(taker, partition)
            taker = step.giver
            step = reached[taker]

    def _cheapest(self, step: _Step, taker: str) -> TopicPartition:
        """Choose the partition to move: a new one, or one that returns to an earlier owner."""

        def cost(index: int) -> tuple[bool, bool, bool, int]:
            partition = TopicPartition(step.topic, index)
            return (
                self._is_near(step.giver, partition) and not self._is_near(taker, partition),
                self._claims.owners.get(partition) == step.giver,
                taker not in self._had(partition),
                -index,
            )

        return TopicPartition(step.topic, min(self._held[step.giver][step.topic], key=cost))

    # Facts.

    def _give(self, member_id: str, partition: TopicPartition) -> None:
        self._held[member_id].setdefault(partition.topic, set()).add(partition.partition)
        self._counts[member_id] += 1

    def _had(self, partition: TopicPartition) -> Sequence[str]:
        """Members that once had the partition and may have it again, the latest first."""
        owner = self._claims.owners.get(partition)
        former = self._claims.former.get(partition, ())
        return former if owner is None else (owner, *former)

    def _replicas(self, partition: TopicPartition) -> frozenset[str]:
        return self._topics[partition.topic][partition.partition]

    def _is_near(self, member_id: str, partition: TopicPartition) -> bool:
        rack = self._racks.get(member_id)
        return rack is None or rack in self._replicas(partition)


class _Least:
    """Of the takers of one topic, the one with the fewest partitions, while those grow in number.

    A heap whose entries are brought up to date when they come to the top.
    """

    def __init__(
        self, takers: Iterable[str], counts: Mapping[str, int], rank: Mapping[str, int]
    ) -> None:
        self._counts = counts
        self._heap = [(counts[taker], rank[taker], taker) for taker in takers]
        heapq.heapify(self._heap)

    def member(self) -> str:
        while True:
            count, rank, taker = self._heap[0]
            if count == self._counts[taker]:
                return taker
            heapq.heapreplace(self._heap, (self._counts[taker], rank, taker))


def _racks_that_matter(members: Iterable[Candidate], topics: Topics) -> dict[str, str]:
    """Return the racks of members, if racks matter."""
    racks = {member.member_id: member.rack for member in members if member.rack is not None}
    partitions: Iterator[frozenset[str]] = (racks for parts in topics.values() for racks in parts)
    return racks if should_match_racks(set(racks.values()), list(partitions)) else {}
