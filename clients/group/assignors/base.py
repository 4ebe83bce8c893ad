"""What an assignor is given, and what it has to return."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from qbus.consumer_protocol import NO_GENERATION, Subscription

from ...types import TopicPartition

Topics = Mapping[str, Sequence[frozenset[str]]]
"""The topics that there are: of each partition the racks where it has replicas."""
Assignments = dict[str, list[TopicPartition]]
"""By member id: the partitions of each member; every member is in it."""


class Candidate(NamedTuple):
    """A member that is to be assigned partitions, and what it said when it joined."""

    member_id: str
    instance_id: str | None
    subscription: Subscription

    @property
    def rack(self) -> str | None:
        """Where it runs; None: it does not say."""
        return self.subscription.rack or None


class Previous(NamedTuple):
    """What a member was assigned last, and in which generation."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


class Assignor(ABC):
    """Decides, in the member that leads the group, who reads which partitions.

    ``name`` is what the members agree on by. ``is_cooperative``: it never assigns a partition to
    one while another says that it still has it, so that members may keep what they have during a
    rebalance (KIP-429).
    """

    name: ClassVar[str]
    is_cooperative: ClassVar[bool] = False

    def user_data(self, previous: Previous | None) -> bytes | None:
        """What this member tells the leader beside its subscription; None: nothing.

        ``previous``: what it was assigned last, if it ever was.
        """
        del previous
        return None

    @abstractmethod
    def assign(self, members: Sequence[Candidate], topics: Topics) -> Assignments:
        """Everyone's partitions. Subscribed topics that are not in ``topics`` do not exist."""


def java_order(text: str) -> bytes:
    """A sort key: strings in the order that Java gives them, that of their UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def in_order(members: Iterable[Candidate]) -> list[Candidate]:
    """Static members in the order of their instances, then the others in that of their ids."""
    return sorted(
        members,
        key=lambda member: (
            member.instance_id is None,
            java_order(member.instance_id or ""),
            java_order(member.member_id),
        ),
    )


def partitions_of(topic: str, topics: Topics) -> list[TopicPartition]:
    """All partitions of a topic."""
    return [TopicPartition(topic, index) for index in range(len(topics[topic]))]
