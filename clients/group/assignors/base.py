"""The interface of assignors."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from qbus.consumer_protocol import NO_GENERATION, Subscription

from ...types import TopicPartition

Topics = Mapping[str, Sequence[frozenset[str]]]
"""The existing topics: for each partition the racks of its replicas."""
Assignments = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id; it holds every member."""


class Candidate(NamedTuple):
    """A member to assign partitions to, and its subscription."""

    member_id: str
    instance_id: str | None
    subscription: Subscription

    @property
    def rack(self) -> str | None:
        """Where it runs; None: unknown."""
        return self.subscription.rack or None


class Previous(NamedTuple):
    """The last assignment of a member, and its generation."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


class Assignor(ABC):
    """Assigns partitions, in the member that leads the group.

    Members agree on an assignor by ``name``. A cooperative one (``is_cooperative``) never assigns a
    partition that another member still owns, so that members keep their partitions during a
    rebalance (KIP-429).
    """

    name: ClassVar[str]
    is_cooperative: ClassVar[bool] = False

    def user_data(self, previous: Previous | None) -> bytes | None:
        """Return data for the leader besides the subscription; None: none.

        ``previous``: the member's last assignment, if it had one.
        """
        del previous
        return None

    @abstractmethod
    def assign(self, members: Sequence[Candidate], topics: Topics) -> Assignments:
        """Return all members' partitions. Subscribed topics missing in ``topics`` do not exist."""


def java_order(text: str) -> bytes:
    """Return a sort key for Java's order of strings, that of UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def in_order(members: Iterable[Candidate]) -> list[Candidate]:
    """Sort static members by instance id, then the others by member id."""
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


def should_match_racks(readers: Collection[str], partitions: Sequence[frozenset[str]]) -> bool:
    """Whether to look at racks: some are common, and not every partition is in all of them.

    ``readers``: the racks of members; ``partitions``: those of each partition's replicas.
    """
    everywhere: frozenset[str] = frozenset().union(*partitions)
    if everywhere.isdisjoint(readers):
        return False
    return any(racks != everywhere for racks in partitions)
