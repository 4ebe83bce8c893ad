"""Leaders that somebody asks for, and preferred ones that are due (KIP-183, KIP-460)."""

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum

from qbus.errors import ApiError, ErrorCode
from qbus.metadata.znodes import NO_LEADER, PartitionStateNode

from ..metadata.image import PartitionInfo, Topic
from ..metadata.partition_states import elect
from .elections import StateChange, TopicRules, View


class ElectionType(IntEnum):
    """Which election is asked for, by its number in ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


def elected(
    partition: PartitionInfo, kind: ElectionType, view: View, rules: TopicRules
) -> PartitionStateNode:
    """The state after the election.

    Raises:
        ApiError: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, or
            ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    is_led = partition.leader in view.live
    preferred = partition.replicas[0]
    if kind is ElectionType.PREFERRED:
        if is_led and partition.leader == preferred:
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "the preferred replica leads already")
        if preferred in view.full:
            raise ApiError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"broker {preferred} has no room for more records",
            )
        if preferred not in view.electable or preferred not in (*partition.isr, *partition.elr):
            raise ApiError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"broker {preferred} is not there, or not in sync",
            )
    elif is_led:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads")
    state = elect(
        partition.state(view.controller_epoch),
        view.preference(partition.replicas),
        view.live if kind is ElectionType.PREFERRED else view.electable,
        view.controller_epoch,
        wanted=rules.wanted(len(partition.replicas)),
        unclean=kind is ElectionType.UNCLEAN,
    )
    if state.leader == NO_LEADER:
        raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "none of its replicas is there")
    if kind is ElectionType.PREFERRED and state.leader != preferred:
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is not in sync"
        )
    return state


def rebalancing(topics: Iterable[Topic], view: View, percentage: int) -> list[StateChange]:
    """The elections due for brokers that lead too little of what they should.

    Those are the brokers that do not lead more than ``percentage`` of the partitions that prefer
    them. Partitions on the move are left alone, and so is what cannot be led by whom it should.
    """
    known = list(topics)
    preferring: Counter[int] = Counter()
    astray: Counter[int] = Counter()
    for topic in known:
        for partition in topic.partitions:
            preferring[partition.replicas[0]] += 1
            astray[partition.replicas[0]] += partition.leader != partition.replicas[0]
    unbalanced = {
        broker for broker, count in astray.items() if 100 * count > percentage * preferring[broker]
    }
    changes = []
    for topic in known:
        rules = view.rules(topic)
        for index, partition in enumerate(topic.partitions):
            preferred = partition.replicas[0]
            if (
                preferred not in unbalanced
                or preferred not in partition.isr
                or partition.is_moving
                or partition.version < 0
            ):
                continue
            try:
                state = elected(partition, ElectionType.PREFERRED, view, rules)
            except ApiError:
                continue
            changes.append(StateChange(topic, index, state, partition.version))
    return changes
