"""The earlier owners of partitions, according to the members."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...types import TopicPartition
from .base import Candidate, Previous, Topics


class Claims(NamedTuple):
    """What members had before.

    ``owners``: the one owner of each partition; ``former``: the others who once had it, the latest
    first.
    """

    owners: Mapping[TopicPartition, str]
    former: Mapping[TopicPartition, Sequence[str]]


def resolve_claims(
    members: Sequence[Candidate], said: Mapping[str, Previous], topics: Topics
) -> Claims:
    """Weigh what was ``said`` by each member.

    Of two who claim the same partition the one of the later generation has it; two of the same
    generation both err, and nobody has it. Claims to what does not exist, or is no longer wanted by
    the one who had it, are void.
    """
    claims: defaultdict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    for member in members:
        wanted = frozenset(member.subscription.topics)
        previous = said[member.member_id]
        for partition in dict.fromkeys(previous.partitions):
            topic, index = partition
            if topic in wanted and topic in topics and 0 <= index < len(topics[topic]):
                claims[partition].append((previous.generation, member.member_id))
    owners: dict[TopicPartition, str] = {}
    former: dict[TopicPartition, Sequence[str]] = {}
    for partition, claimants in claims.items():
        claimants.sort(reverse=True)
        if len(claimants) == 1 or claimants[0][0] != claimants[1][0]:
            owners[partition] = claimants[0][1]
            claimants = claimants[1:]
        former[partition] = [member_id for _, member_id in claimants]
    return Claims(owners, former)
