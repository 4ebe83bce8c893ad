"""Groups of both protocols: how a group is restored, and how it changes from one to the other.

A group without members takes the protocol of whoever joins it. With members,
``group.consumer.migration.policy`` decides: *upgrade* lets a member of KIP-848 join a classic
group, which is then one of KIP-848 with classic members in it; *downgrade* makes it a classic one
again when the last member of KIP-848 is gone; *bidirectional* allows both, *disabled* none. So the
consumers of a group can be restarted one by one with another protocol, in either direction.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from qbus.config import BrokerConfig, ShareGroupConfig
from qbus.consumer_protocol import (
    CONSUMER,
    Subscription,
    decode_assignment,
    decode_subscription,
)
from qbus.errors import ApiError, ErrorCode, WireError
from qbus.names import TopicPartition

from ..group.group import Group, GroupImage, GroupLimits
from ..group.machine import GroupMachine
from ..group.members import Member as ClassicMember
from ..group.members import MemberImage
from ..group.requests import ConsumerHeartbeat, Request
from ..group.state import GroupState
from ..metadata.image import Topic
from .assignors import ASSIGNORS, Partitions
from .group import ConsumerGroup, Settings
from .member import JOIN, Classic, Member, MemberState
from .nodes import decode
from .patterns import TopicPattern, TopicPatterns
from .roster import Catalog

_log = logging.getLogger(__name__)

_UPGRADES = frozenset({"upgrade", "bidirectional"})
_DOWNGRADES = frozenset({"downgrade", "bidirectional"})


class Metadata(Protocol):
    """The part of the cluster's metadata that groups of KIP-848 need."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics that exist now, by name."""

    @property
    def topics_by_id(self) -> Mapping[bytes, Topic]:
        """The topics that exist now, by id."""

    def group_config(self, group: str) -> ShareGroupConfig:
        """The configuration in force of a group."""


class ClusterTopics(Catalog):
    """The topics of the cluster."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.patterns = TopicPatterns(self._names)

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return a topic's id and the number of its partitions; None: there is none."""
        topic = self._metadata.topics.get(name)
        return None if topic is None else (topic.id, len(topic.partitions))

    def name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id."""
        topic = self._metadata.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def pattern(self, text: str) -> TopicPattern | None:
        """Return a pattern whose topics were found; None: it is not valid."""
        return self.patterns.find(text)

    def _names(self) -> Collection[str]:
        return self._metadata.topics.keys()


class ConsumerGroups:
    """Makes the groups of KIP-848 of a broker."""

    def __init__(self, config: BrokerConfig, metadata: Metadata) -> None:
        self._config = config
        self._metadata = metadata
        self._catalog = ClusterTopics(metadata)
        self._limits = GroupLimits(
            max_size=config.group_max_size,
            initial_rebalance_delay=config.group_initial_rebalance_delay_ms / 1000,
        )

    async def resolve(self, request: ConsumerHeartbeat) -> object:
        """Find the topics that a request's pattern matches; they are known while the result lives.

        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION.
        """
        return await self._catalog.patterns.resolve(request.pattern) if request.pattern else None

    async def prepare(self, group_id: str, nodes: Mapping[str, bytes]) -> object:
        """Find the topics that a stored group's patterns match, as :meth:`resolve` does.

        Raises:
            MalformedGroupError: the nodes do not hold a group.
        """
        found: list[TopicPattern] = []
        for text in {member.pattern for member in decode(nodes)[2] if member.pattern}:
            try:
                found.append(await self._catalog.patterns.resolve(text))
            except ApiError as error:  # stored by another version, which accepted more
                _log.warning(
                    "group %r: the pattern %.200r matches no topics: %s", group_id, text, error
                )
        return found

    def follow_topics(self, changed: Callable[[], None]) -> None:
        """Compare new topics with the patterns; ``changed`` is called later if one matches any."""
        self._catalog.patterns.follow(changed)

    def close(self) -> None:
        """Stop what :meth:`follow_topics` began."""
        self._catalog.patterns.close()

    def restore(
        self, group_id: str, _image: GroupImage, nodes: Mapping[str, bytes], now: float
    ) -> GroupMachine:
        """Restore a group; all time-outs start again.

        Raises:
            MalformedGroupError: the nodes do not hold a group.
        """
        epoch, assignment_epoch, members = decode(nodes)
        group = self._group(group_id, epoch)
        group.restore(assignment_epoch, members, now)
        return group

    def convert(self, group: GroupMachine, request: Request, now: float) -> GroupMachine:
        """Return the group that takes a request in the place of ``group``, which does not.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, only a member that joins changes a group;
                GROUP_ID_NOT_FOUND, the group has members and stays a classic one.
        """
        if isinstance(group, ConsumerGroup):
            return self._classic(group, (), now)
        if not isinstance(request, ConsumerHeartbeat) or request.epoch != JOIN:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"{group.group_id} is no group of this protocol"
            )
        assert isinstance(group, Group)
        successor = self._group(group.group_id, group.generation)
        if group.members:
            self._check_upgrade(group)
            members = self._upgraded(group)
            successor.restore(group.generation, members, now)
        return successor

    def successor(self, group: GroupMachine, now: float) -> GroupMachine | None:
        """Return the classic group that a group becomes when only classic members are left."""
        if not isinstance(group, ConsumerGroup) or group.is_vacant:
            return None
        if group.state is GroupState.DEAD:
            return None
        if self._config.group_consumer_migration_policy not in _DOWNGRADES:
            return None
        if any(member.classic is None for member in group.members):
            return None
        return self._classic(group, [self._downgraded(group, one) for one in group.members], now)

    def _group(self, group_id: str, epoch: int) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._catalog, self._settings(group_id), epoch)

    def _settings(self, group_id: str) -> Callable[[], Settings]:
        def read() -> Settings:
            config = self._metadata.group_config(group_id)
            return Settings(
                config.consumer_session_timeout_ms,
                config.consumer_heartbeat_interval_ms,
                self._config.group_consumer_max_size,
                tuple(name for name in self._config.group_consumer_assignors if name in ASSIGNORS),
            )

        return read

    def _check_upgrade(self, group: Group) -> None:
        """Raise ApiError GROUP_ID_NOT_FOUND for a group that has to stay a classic one."""
        reason = ""
        if self._config.group_consumer_migration_policy not in _UPGRADES:
            reason = "group.consumer.migration.policy does not allow to change its protocol"
        elif group.protocol_type != CONSUMER:
            reason = f"its members are no consumers, but of type {group.protocol_type}"
        else:
            try:
                for member in group.members:
                    decode_subscription(member.protocols[0].metadata)
                    decode_assignment(member.assignment)
            except (WireError, IndexError):
                reason = "not all its members have the metadata of consumers"
        if reason:
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"{group.group_id} is a classic group with members: {reason}",
            )

    def _upgraded(self, group: Group) -> list[Member]:
        """The members of a classic group, with what each may be reading.

        A cooperative member that was to give partitions up may not have done so before it joins
        again. Where two list the same one, that of the later generation has it.
        """
        known = [
            (member, decode_subscription(member.protocols[0].metadata))
            for member in group.members
            if not member.is_new
        ]
        known.sort(key=lambda one: one[1].generation)
        members = [self._upgraded_member(*one, group.generation) for one in known]
        given = frozenset(partition for member in members for partition in member.assigned)
        for member, (_, subscription) in zip(members, known, strict=True):
            if left := self._ids(subscription.owned) - given:
                member.revoking, member.state = left, MemberState.UNREVOKED
        return members

    def _upgraded_member(
        self, member: ClassicMember, subscription: Subscription, generation: int
    ) -> Member:
        assigned = self._ids(decode_assignment(member.assignment))
        return Member(
            member.member_id,
            member.instance_id,
            subscription.rack,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            frozenset(subscription.topics),
            classic=Classic(member.session_timeout_ms, member.protocols),
            epoch=generation,
            assigned=assigned,
            target=assigned,
        )

    def _ids(self, partitions: Iterable[TopicPartition]) -> Partitions:
        found = ((self._catalog.find(topic), index) for topic, index in partitions)
        return frozenset((topic[0], index) for topic, index in found if topic is not None)

    def _downgraded(self, group: ConsumerGroup, member: Member) -> MemberImage:
        assert member.classic is not None
        return MemberImage(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.classic.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.classic.protocols,
            group.classic_assignment(member),
        )

    def _classic(
        self, group: ConsumerGroup, members: Collection[MemberImage], now: float
    ) -> GroupMachine:
        """Return a classic group in the same epoch; its members, if any, are to join again."""
        image = GroupImage(GroupState.EMPTY, group.epoch, CONSUMER, None, None)
        if members:
            leader = next(iter(members))
            protocol = leader.protocols[0].name
            image = GroupImage(
                GroupState.PREPARING,
                group.epoch,
                CONSUMER,
                protocol,
                leader.member_id,
                tuple(members),
            )
        return Group.restore(group.group_id, image, now, self._limits)
