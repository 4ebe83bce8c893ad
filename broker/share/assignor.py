"""The simple assignor of share groups (KIP-932): every partition read, every member busy.

Unlike in consumer groups, many members may read one partition. Each partition goes to a member that
subscribes to its topic, evenly; a member that gets none shares the partition with the fewest
readers. What members read already they keep where that is even, for each change of an assignment
costs fetches.
"""

from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush

TopicPartition = tuple[bytes, int]
"""A topic's id and a partition's index."""

Partitions = frozenset[TopicPartition]


def assign(
    subscribed: Mapping[str, Collection[bytes]],
    sizes: Mapping[bytes, int],
    current: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """Assign partitions to members.

    subscribed: the ids of the topics of each member.
    sizes: the number of partitions of each topic that exists.
    current: what members have now, as far as they have anything.
    """
    readers = _readers(subscribed, sizes)
    assigned: dict[str, set[TopicPartition]] = {member: set() for member in subscribed}
    counts: dict[TopicPartition, int] = {}
    for topic, members in readers.items():
        for partition, member in _spread(topic, sizes[topic], members, assigned, current):
            assigned[member].add(partition)
            counts[partition] = counts.get(partition, 0) + 1
    idle = [member for member in sorted(subscribed) if not assigned[member]]
    for topics, members in _by_topics(idle, subscribed, sizes).items():
        for member, partition in _share(topics, members, sizes, counts, current):
            assigned[member].add(partition)
    return {member: frozenset(partitions) for member, partitions in assigned.items()}


def least_read(
    topics: Iterable[bytes], sizes: Mapping[bytes, int], assignment: Iterable[Partitions]
) -> TopicPartition | None:
    """The partition of some topics with the fewest readers; None: the topics have no partitions."""
    counts = {(topic, index): 0 for topic in topics for index in range(sizes.get(topic, 0))}
    for partitions in assignment:
        for partition in partitions:
            if partition in counts:
                counts[partition] += 1
    return min(counts, key=lambda partition: (counts[partition], partition), default=None)


def _readers(
    subscribed: Mapping[str, Collection[bytes]], sizes: Mapping[bytes, int]
) -> dict[bytes, list[str]]:
    readers: dict[bytes, list[str]] = {}
    for member in sorted(subscribed):
        for topic in subscribed[member]:
            if topic in sizes:
                readers.setdefault(topic, []).append(member)
    return dict(sorted(readers.items()))


def _spread(
    topic: bytes,
    size: int,
    members: list[str],
    assigned: Mapping[str, Collection[TopicPartition]],
    current: Mapping[str, Partitions],
) -> list[tuple[TopicPartition, str]]:
    """One reader for each partition of a topic: as many for each member, within one."""
    most, larger = divmod(size, len(members))
    left = {(topic, index): None for index in range(size)}
    given: list[tuple[TopicPartition, str]] = []
    loads: dict[str, int] = {}
    for member in members:
        kept = sorted(left.keys() & current.get(member, ()))
        allowed = most + (larger > 0)
        taken = kept[:allowed]
        larger -= len(taken) > most
        loads[member] = len(taken)
        for partition in taken:
            del left[partition]
            given.append((partition, member))
    queue = [(loads[member], len(assigned[member]), member) for member in members]
    heapify(queue)
    for partition in left:
        load, others, member = heappop(queue)
        given.append((partition, member))
        heappush(queue, (load + 1, others, member))
    return given


def _by_topics(
    idle: list[str], subscribed: Mapping[str, Collection[bytes]], sizes: Mapping[bytes, int]
) -> dict[tuple[bytes, ...], list[str]]:
    """Members without a partition, by the topics that they subscribe to."""
    groups: dict[tuple[bytes, ...], list[str]] = {}
    for member in idle:
        topics = tuple(sorted(topic for topic in subscribed[member] if sizes.get(topic)))
        if topics:
            groups.setdefault(topics, []).append(member)
    return groups


def _share(
    topics: tuple[bytes, ...],
    members: list[str],
    sizes: Mapping[bytes, int],
    counts: dict[TopicPartition, int],
    current: Mapping[str, Partitions],
) -> list[tuple[str, TopicPartition]]:
    """One partition for each of the members, so that each has about as many readers."""
    partitions = [(topic, index) for topic in topics for index in range(sizes[topic])]
    readers = len(members) + sum(counts.get(partition, 0) for partition in partitions)
    most = -(-readers // len(partitions))
    given: list[tuple[str, TopicPartition]] = []
    rest = []
    for member in members:
        kept = min(
            (one for one in current.get(member, ()) if one[0] in topics and one[1] < sizes[one[0]]),
            default=None,
        )
        if kept is None or counts.get(kept, 0) >= most:
            rest.append(member)
            continue
        counts[kept] = counts.get(kept, 0) + 1
        given.append((member, kept))
    queue = [(counts.get(partition, 0), partition) for partition in partitions]
    heapify(queue)
    for member in rest:
        count, partition = heappop(queue)
        counts[partition] = count + 1
        given.append((member, partition))
        heappush(queue, (count + 1, partition))
    return given
