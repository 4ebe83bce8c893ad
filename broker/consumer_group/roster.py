"""Who is in a group of KIP-848, under which instance id, and which member holds each partition.

Nothing here knows of epochs or of time. What holds at all times: an instance id belongs to one
member, and so does a partition.
"""

from collections.abc import ValuesView
from typing import Protocol

from qbus.errors import ApiError, ErrorCode

from ..group.requests import Sight
from .assignors import Partitions, TopicPartition
from .member import NONE, Member
from .nodes import member_path
from .patterns import NO_TOPICS, TopicPattern


class Catalog(Protocol):
    """The topics that exist now."""

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return a topic's id and the number of its partitions; None: there is none."""

    def name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id."""

    def pattern(self, text: str) -> TopicPattern | None:
        """Return a pattern whose topics were found; None: it is not valid."""


class Roster:
    """The members of one group. ``has_changed`` is set whenever some are to be stored anew."""

    def __init__(self, group_id: str, catalog: Catalog) -> None:
        self.has_changed = False
        self._group_id = group_id
        self._catalog = catalog
        self._members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}
        self._holders: dict[TopicPartition, str] = {}
        self._patterns: dict[str, TopicPattern] = {}

    # For reading

    @property
    def members(self) -> ValuesView[Member]:
        """All members."""
        return self._members.values()

    @property
    def subscription(self) -> set[str]:
        """The names of all topics that members subscribe to."""
        return {name for member in self._members.values() for name in member.subscription}

    def find(self, member_id: str) -> Member | None:
        """Return the member with an id."""
        return self._members.get(member_id)

    def of_instance(self, instance_id: str | None) -> Member | None:
        """Return the static member that has an instance id."""
        member_id = self._instances.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self._members[member_id]

    def get(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member that says that it is this one.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID, another member has the instance id.
        """
        if instance_id is not None:
            holder = self.of_instance(instance_id)
            if holder is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"nobody has the id {instance_id}")
            if holder.member_id != member_id:
                raise ApiError(
                    ErrorCode.FENCED_INSTANCE_ID, f"another member has the id {instance_id}"
                )
        member = self._members.get(member_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member of {self._group_id}"
            )
        return member

    def leaves_partitions_out(self) -> bool:
        """Whether subscribed topics have partitions that are no member's target."""
        targets = {one for member in self._members.values() for one in member.target}
        found = (self._catalog.find(name) for name in self.subscription)
        return any(
            (topic_id, index) not in targets
            for topic_id, count in filter(None, found)
            for index in range(count)
        )

    # Members

    def check_room(self, most: int) -> None:
        """Check that there is room for one member more.

        Raises:
            ApiError: GROUP_MAX_SIZE_REACHED.
        """
        if len(self._members) >= most:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the group {self._group_id} has {most} members, the most that it may have",
            )

    def enter(self, member: Member) -> None:
        """Add a member, which holds nothing yet."""
        member.path = member_path(member.member_id)
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self.touch(member)

    def restore(self, member: Member) -> None:
        """Add a member with what it holds, which it takes from whoever held that before."""
        self.enter(member)
        for partition in member.held:
            former = self._members.get(self._holders.get(partition, ""))
            if former is not None:
                former.assigned -= {partition}
                former.revoking -= {partition}
                self.touch(former)
            self._holders[partition] = member.member_id
        self.match(member)

    def remove(self, member: Member) -> None:
        """Remove a member; what it held is free."""
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        for partition in member.held:
            del self._holders[partition]
        self.has_changed = True

    def succeed(self, former: Member, member_id: str) -> Member:
        """Give a static member's place, and what it has, to its next incarnation."""
        held, target = former.held, former.target
        self.remove(former)
        member = Member(
            member_id,
            former.instance_id,
            topics=former.topics,
            pattern=former.pattern,
            matching=former.matching,
            sight=former.sight,
            assignor=former.assignor,
            target=target,
        )
        self.enter(member)
        self.set_held(member, held, NONE)
        return member

    def touch(self, member: Member) -> None:
        """Note that a member is to be stored anew."""
        member.encoded = None
        self.has_changed = True

    # What they hold

    def is_free(self, member: Member, partition: TopicPartition) -> bool:
        """Whether no other member holds a partition."""
        return self._holders.get(partition, member.member_id) == member.member_id

    def set_held(self, member: Member, assigned: Partitions, revoking: Partitions) -> None:
        """Have a member hold just that."""
        before = member.held
        member.assigned, member.revoking = assigned, revoking
        self.note_held(member, before)
        self.touch(member)

    def note_held(self, member: Member, before: Partitions) -> None:
        """Note who holds what a member holds now, and that what it held ``before`` is free."""
        held = member.held
        for partition in before - held:
            del self._holders[partition]
        for partition in held - before:
            assert partition not in self._holders
            self._holders[partition] = member.member_id

    # Patterns

    def match(self, member: Member) -> None:
        """Find the topics that a member's pattern matches."""
        member.matching = self._visible(member.pattern, member.sight)

    def match_all(self) -> None:
        """Find the topics of all patterns anew, once for members of the same client."""
        found: dict[tuple[str, Sight | None], frozenset[str]] = {}
        for member in self._members.values():
            if member.pattern:
                key = member.pattern, member.sight
                if key not in found:
                    found[key] = self._visible(*key)
                member.matching = found[key]

    def _visible(self, text: str, sight: Sight | None) -> frozenset[str]:
        """The topics that a pattern matches, and that the member may know of."""
        pattern = self._catalog.pattern(text) if text else None
        if pattern is None:
            return NO_TOPICS
        if self._patterns.get(text) is not pattern:
            used = {member.pattern for member in self._members.values()}
            self._patterns = {key: one for key, one in self._patterns.items() if key in used}
            self._patterns[text] = pattern
        return pattern.topics if sight is None else frozenset(filter(sight.sees, pattern.topics))
