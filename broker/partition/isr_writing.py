"""One attempt to write some changes of in-sync replicas together."""

from collections.abc import Sequence
from typing import NamedTuple

from qbus.metadata import (
    Check,
    MetadataStore,
    NodeError,
    Op,
    Set,
    TransactionTooLarge,
)
from qbus.metadata.feed import decide
from qbus.metadata.znodes import BrokerEpochNode, ChangeNode, PartitionStateNode

from ..metadata.image import Topic
from .followers import Followers, Proposal
from .partition import Partition


class Change(NamedTuple):
    """What the followers of a partition of ``topic`` propose."""

    topic: Topic
    partition: Partition
    followers: Followers
    proposal: Proposal

    @property
    def path(self) -> str:
        """The node that holds the partition's state."""
        return PartitionStateNode.path(self.topic.name, self.partition.index)

    @property
    def guards(self) -> dict[str, Op]:
        """The checks that the topic is still this one, by path."""
        return {guard.path: guard for guard in self.topic.guards}

    @property
    def added(self) -> dict[str, int]:
        """The epochs' nodes of the brokers that come in sync, and their versions."""
        return {BrokerEpochNode.path(one): epoch for one, epoch in self.proposal.added.items()}


class Outcome(NamedTuple):
    """What was written, and what was refused for good; of anything else nobody knows yet."""

    written: Sequence[Change]
    refused: Sequence[Change]


async def write(
    store: MetadataStore, changes: Sequence[Change], fence: Check, controller_epoch: int
) -> Outcome:
    """Write as many of ``changes`` as apply, which is all of them as a rule.

    A transaction does not apply as a whole and says where, so what is at fault is left out and the
    rest tried again: a state or a topic that is another by now, until that is heard of; and for
    good, whoever would come in sync and is registered anew.

    Raises:
        StoreError: nothing is known of what was not written.
    """
    left = list(changes)
    refused: list[Change] = []
    while left:
        try:
            guards, writes, change = _operations(left, controller_epoch)
            await decide(store, [fence, *guards], writes, change)
        except TransactionTooLarge:
            if len(left) == 1:
                raise
            half = len(left) // 2
            first = await write(store, left[:half], fence, controller_epoch)
            second = await write(store, left[half:], fence, controller_epoch)
            return Outcome(
                [*first.written, *second.written],
                [*refused, *first.refused, *second.refused],
            )
        except NodeError as error:
            path = error.path
            refused += [one for one in left if path in one.added]
            rest = [one for one in left if path not in {one.path, *one.added, *one.guards}]
            if len(rest) == len(left):  # the controller is another: that will be heard of
                return Outcome([], refused)
            left = rest
        else:
            return Outcome(left, refused)
    return Outcome([], refused)


def _operations(
    changes: Sequence[Change], controller_epoch: int
) -> tuple[list[Op], list[Op], ChangeNode]:
    """The guards, the writes and what the feed announces.

    The states come before the checks of the replicas that are added.

    Where both are at fault, the state's version tells: the change may have come to pass before.
    """
    topics = {path: guard for change in changes for path, guard in change.guards.items()}
    added = dict.fromkeys(one for change in changes for one in change.added.items())
    states: dict[str, tuple[int, ...]] = {}
    for change in changes:
        topic = change.topic.name
        states[topic] = (*states.get(topic, ()), change.partition.index)
    writes: list[Op] = [
        *(
            Set(
                change.path,
                change.proposal.state._replace(controller_epoch=controller_epoch).encode(),
                change.proposal.version,
            )
            for change in changes
        ),
        *(Check(path, epoch) for path, epoch in added),
    ]
    return list(topics.values()), writes, ChangeNode(states=states)
