"""The earlier owners of partitions, according to the members."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...types import TopicPartition
from .base import Candidate, Previous, Topics


class Claims(NamedTuple):
    """What members owned before.

    ``owners``: the single owner of each partition; ``former``: earlier owners, the latest first.
    """

    owners: Mapping[TopicPartition, str]
    former: Mapping[TopicPartition, Sequence[str]]


def resolve_claims(
    members: Sequence[Candidate], said: Mapping[str, Previous], topics: Topics
) -> Claims:
    """Decide who owned each partition, given the previous assignments that members report.

    If several members claim a partition, the one of the latest generation owned it; if two claim it
    in the same generation, none did. Claims to missing partitions, or to topics that the member no
    longer wants, do not count.
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
