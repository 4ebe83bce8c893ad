"""The assignors of the broker (KIP-848): which member of a group is to read which partitions.

An assignor sees all members at once. *uniform* gives every member as many partitions as any other
that reads the same topics, within one, and moves as few as that allows. *range* gives each member a
run of neighbouring partitions of every topic, and members of topics with equally many partitions
the same runs, so that what belongs together by its key is read together.
"""

from collections.abc import Callable, Collection, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple

TopicPartition = tuple[bytes, int]
"""A topic's id and a partition's index."""

Partitions = frozenset[TopicPartition]


class Reader(NamedTuple):
    """A member as assignors see it.

    ``topics`` are the ids of those that it wants to read, ``current`` the partitions that it is to
    have by the assignment before.
    """

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    current: Partitions


Assignor = Callable[[Collection[Reader], Mapping[bytes, int]], dict[str, Partitions]]
"""Assigns to readers the partitions of topics, given the number of partitions by topic id."""


def uniform(readers: Collection[Reader], sizes: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Share out evenly, and move as little as possible."""
    if len({reader.topics for reader in readers}) <= 1:
        return _equal_shares(readers, sizes)
    return _Balance(readers, sizes).result()


def range_(readers: Collection[Reader], sizes: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Give runs of neighbouring partitions, the first ones to the first members.

    Static members are ordered by their instance, so that a restart changes nothing.
    """
    assigned: dict[str, set[TopicPartition]] = {reader.member_id: set() for reader in readers}
    ordered = sorted(readers, key=lambda reader: reader.instance_id or reader.member_id)
    for topic, size in sizes.items():
        members = [reader.member_id for reader in ordered if topic in reader.topics]
        if not members:
            continue
        share, larger = divmod(size, len(members))
        begin = 0
        for place, member_id in enumerate(members):
            end = begin + share + (place < larger)
            assigned[member_id].update((topic, index) for index in range(begin, end))
            begin = end
    return _frozen(assigned)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": range_}
"""The assignors by the names that members ask for."""


def _equal_shares(readers: Collection[Reader], sizes: Mapping[bytes, int]) -> dict[str, Partitions]:
    """All members read the same topics: each gets the same number of partitions, within one."""
    wanted = next(iter(readers)).topics if readers else frozenset()
    free = {(topic, index) for topic in wanted for index in range(sizes.get(topic, 0))}
    share, larger = divmod(len(free), len(readers)) if readers else (0, 0)
    assigned: dict[str, set[TopicPartition]] = {}
    # Members that have most may keep one more, so that nothing moves without need.
    for reader in sorted(readers, key=lambda reader: (-len(reader.current), reader.member_id)):
        kept = free.intersection(reader.current)
        most = share + (larger > 0)
        if len(kept) > most:
            kept = set(sorted(kept)[:most])
        larger -= len(kept) > share
        free -= kept
        assigned[reader.member_id] = kept
    queue = [(len(kept), member_id) for member_id, kept in assigned.items()]
    heapify(queue)
    for partition in sorted(free):
        load, member_id = queue[0]
        assigned[member_id].add(partition)
        heapreplace(queue, (load + 1, member_id))
    return _frozen(assigned)


class _Balance:
    """Members that read different topics: each partition goes where there are fewest.

    In the end no partition could move to a member with two or more fewer than its own. Topics with
    the same readers share a queue of these by their loads; an entry with a former load is dropped
    when it comes up.
    """

    def __init__(self, readers: Collection[Reader], sizes: Mapping[bytes, int]) -> None:
        self._assigned: dict[str, set[TopicPartition]] = {one.member_id: set() for one in readers}
        self._queue_of: dict[bytes, int] = {}
        self._queues: list[list[tuple[int, str]]] = []
        self._queues_of: dict[str, list[int]] = {one.member_id: [] for one in readers}
        self._find_queues(readers, sizes)
        free = {(topic, index) for topic in self._queue_of for index in range(sizes[topic])}
        for one in sorted(readers, key=lambda reader: reader.member_id):
            kept = {partition for partition in one.current & free if partition[0] in one.topics}
            self._assigned[one.member_id] = kept
            free -= kept
        for queue in self._queues:
            queue[:] = [(len(self._assigned[member_id]), member_id) for _, member_id in queue]
            heapify(queue)
        # Partitions with the fewest readers to choose from come first.
        choices = {topic: len(self._queues[queue]) for topic, queue in self._queue_of.items()}
        for partition in sorted(free, key=lambda one: (choices[one[0]], one)):
            self._give(partition, self._least_loaded(self._queue_of[partition[0]])[1])
        while self._even_out():
            pass

    def result(self) -> dict[str, Partitions]:
        """The partitions of each member."""
        return _frozen(self._assigned)

    def _find_queues(self, readers: Collection[Reader], sizes: Mapping[bytes, int]) -> None:
        readers_of: dict[bytes, list[str]] = {}
        for one in readers:
            for topic in one.topics:
                if topic in sizes:
                    readers_of.setdefault(topic, []).append(one.member_id)
        known: dict[tuple[str, ...], int] = {}
        for topic in sizes:  # in their order: that of a set differs from process to process
            members = readers_of.get(topic)
            if members is None:
                continue
            key = tuple(members)
            if key not in known:
                known[key] = len(self._queues)
                self._queues.append([(0, member_id) for member_id in members])
                for member_id in members:
                    self._queues_of[member_id].append(known[key])
            self._queue_of[topic] = known[key]

    def _give(self, partition: TopicPartition, member_id: str) -> None:
        self._assigned[member_id].add(partition)
        self._requeue(member_id)

    def _requeue(self, member_id: str) -> None:
        load = len(self._assigned[member_id])
        for queue in self._queues_of[member_id]:
            heappush(self._queues[queue], (load, member_id))

    def _least_loaded(self, index: int) -> tuple[int, str]:
        queue = self._queues[index]
        while len(self._assigned[queue[0][1]]) != queue[0][0]:
            heappop(queue)
        return queue[0]

    def _even_out(self) -> bool:
        """Move partitions from members with more to those with fewer; return whether any moved.

        Each move makes the sum of the squares of the loads smaller, so there is an end.
        """
        has_moved = False
        loads = [(-len(held), member_id) for member_id, held in self._assigned.items()]
        heapify(loads)
        while loads:
            load, member_id = heappop(loads)
            held = self._assigned[member_id]
            if -load != len(held):
                continue
            queues = {self._queue_of[topic] for topic, _ in held}
            least, target, queue = min(
                ((*self._least_loaded(queue), queue) for queue in queues),
                default=(len(held), "", 0),
            )
            if len(held) - least < 2:
                continue
            partition = max(one for one in held if self._queue_of[one[0]] == queue)
            held.remove(partition)
            self._requeue(member_id)
            self._give(partition, target)
            heappush(loads, (-len(held), member_id))
            heappush(loads, (-len(self._assigned[target]), target))
            has_moved = True
        return has_moved


def _frozen(assigned: Mapping[str, Collection[TopicPartition]]) -> dict[str, Partitions]:
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}
