"""Consumer groups whose partitions the broker assigns (KIP-848).

The classic protocol, offsets, and what is common to both kinds of groups are in
:mod:`qbus.broker.group`.
"""

from .assignors import ASSIGNORS, Partitions
from .group import ConsumerGroup
from .kinds import ConsumerGroups
from .member import Member, MemberState

__all__ = [
    "ASSIGNORS",
    "ConsumerGroup",
    "ConsumerGroups",
    "Member",
    "MemberState",
    "Partitions",
]
