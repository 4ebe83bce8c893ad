"""The sticky assignors: as even as possible, with as few moves as possible.

With Kafka's StickyAssignor, members give up everything before they join, and report their last
assignment in the assignor's own user data. With its CooperativeStickyAssignor they keep their
partitions (KIP-429), which the subscription reports. A partition that moves is assigned to no
member at first, and to its new owner in the next rebalance, after the old owner has released it.
"""

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence

from qbus.consumer_protocol import NO_GENERATION, Reader, encode_partitions
from qbus.errors import WireError

from ...types import TopicPartition
from .balance import Balance
from .base import Assignments, Assignor, Candidate, Previous, Topics
from .claims import resolve_claims

_GENERATION = struct.Struct(">i")


class StickyAssignor(Assignor):
    """Compatible with Kafka's StickyAssignor: an eager one."""

    name = "sticky"

    def user_data(self, previous: Previous | None) -> bytes | None:
        """The last assignment and its generation (Kafka's schema, version 1)."""
        if previous is None:
            return None
        return encode_partitions(previous.partitions) + _GENERATION.pack(previous.generation)

    def assign(self, members: Sequence[Candidate], topics: Topics) -> Assignments:
        """Assign evenly; no member owns anything now, so no partition must be revoked first."""
        said = {member.member_id: _previous(member.subscription.user_data) for member in members}
        return Balance(members, topics, resolve_claims(members, said, topics)).found()


class CooperativeStickyAssignor(Assignor):
    """Compatible with Kafka's CooperativeStickyAssignor."""

    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, previous: Previous | None) -> bytes | None:
        """The generation of the last assignment (for members that do not read it elsewhere)."""
        return _GENERATION.pack(NO_GENERATION if previous is None else previous.generation)

    def assign(self, members: Sequence[Candidate], topics: Topics) -> Assignments:
        """Assign evenly the partitions that no other member still owns."""
        said = {
            member.member_id: Previous(member.subscription.owned, _generation(member))
            for member in members
        }
        found = Balance(members, topics, resolve_claims(members, said, topics)).found()
        return _without_what_others_have(found, said)


def _without_what_others_have(assigned: Assignments, said: Mapping[str, Previous]) -> Assignments:
    holders: defaultdict[TopicPartition, set[str]] = defaultdict(set)
    for member_id, previous in said.items():
        for partition in previous.partitions:
            holders[partition].add(member_id)
    return {
        member_id: [key for key in partitions if holders.get(key, set()) <= {member_id}]
        for member_id, partitions in assigned.items()
    }


def _generation(member: Candidate) -> int:
    """Return the generation in which a member got its partitions."""
    if member.subscription.generation >= 0:
        return member.subscription.generation
    data = member.subscription.user_data
    return _GENERATION.unpack_from(data)[0] if data and len(data) >= 4 else NO_GENERATION


def _previous(data: bytes | None) -> Previous:
    """What a member had, as the sticky assignor's user data says; nothing if it makes no sense.

    Version 0 of the schema has no generation.
    """
    if not data:
        return Previous()
    reader = Reader(data)
    try:
        partitions = reader.partitions()
        return Previous(partitions, NO_GENERATION if reader.is_at_end else reader.int32())
    except WireError:
        return Previous()
