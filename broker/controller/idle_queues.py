"""Idle queues: the controller deletes those that the leaders of all partitions have voted for.

The votes lie in the metadata store, in a node for each broker, and a leader appends nothing to a
partition that it has voted for (:mod:`qbus.broker.queues.idle_votes`). The deletion is one
transaction that checks the versions of the nodes with the votes, and of the partitions' states: a
vote that was taken back, or a partition that was given another leader, has it fail.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from qbus.errors import ApiError
from qbus.metadata import Check, MetadataStore, Op, StoreError
from qbus.metadata.errors import MalformedNode
from qbus.metadata.znodes import IDLE_QUEUES, BrokerEpochNode, IdleQueuesNode, IdleVote

from ..metadata.cache import MetadataCache
from ..metadata.image import BrokerInfo, Topic
from .configs import IDLE_TIME

_log = logging.getLogger(__name__)

SWEEP_S: Final = 5.0
"""How often the controller looks for votes, in seconds."""

_NAMED: Final = 5  # topics in a line of the log
_TOPIC_LETTERS: Final = ("qbus.queue.dead.letter.topic", "qbus.delay.dead.letter.topic")
_GROUP_LETTERS: Final = "errors.deadletterqueue.topic.name"


class Ballot(NamedTuple):
    """What one broker has voted for, as the node of that version has it."""

    broker: int
    version: int
    node: IdleQueuesNode

    @property
    def checks(self) -> list[Op]:
        """The checks that the votes are the same, and of the same run of the broker."""
        return [
            Check(IdleQueuesNode.path(self.broker), self.version),
            Check(BrokerEpochNode.path(self.broker), self.node.broker_epoch),
        ]


class IdleQueue(NamedTuple):
    """A topic that can be deleted, if ``checks`` still apply."""

    topic: Topic
    checks: Sequence[Op]


def idle_queues(
    topics: Mapping[bytes, Topic],
    brokers: Mapping[int, BrokerInfo],
    ballots: Iterable[Ballot],
    spared: Collection[str],
) -> list[IdleQueue]:
    """The topics, by id, all of whose leaders have voted in their present epochs.

    Not those of the names in ``spared``, nor queues that are paused.
    """
    votes: dict[tuple[int, IdleVote], Ballot] = {}
    for ballot in ballots:
        known = brokers.get(ballot.broker)
        if known is not None and known.epoch == ballot.node.broker_epoch:
            votes |= {(ballot.broker, vote): ballot for vote in ballot.node.votes}
    found = []
    for topic_id in {vote.topic_id: None for _, vote in votes}:
        topic = topics.get(topic_id)
        if topic is None or topic.name in spared or not _may_go(topic):
            continue
        needed = [
            votes.get((one.leader, IdleVote(topic_id, index, one.leader_epoch)))
            for index, one in enumerate(topic.partitions)
        ]
        agreed = {ballot.broker: ballot for ballot in needed if ballot is not None}
        if None not in needed and all(one.version >= 0 for one in topic.partitions):
            checks = [check for ballot in agreed.values() for check in ballot.checks]
            found.append(IdleQueue(topic, checks))
    return found


def _may_go(topic: Topic) -> bool:
    """Whether a topic is a queue that is deleted when it is idle, by its configuration."""
    config = topic.config
    is_paused = config.get("qbus.queue.pause", "none") != "none"
    return topic.has_identity and config.get(IDLE_TIME, "-1") != "-1" and not is_paused


def dead_letter_topics(
    topics: Iterable[Topic], groups: Iterable[Mapping[str, str]]
) -> frozenset[str]:
    """The topics that get dead letters of others, by the configuration of topics and groups."""
    named = {topic.config[key] for topic in topics for key in _TOPIC_LETTERS if key in topic.config}
    return frozenset(named | {group.get(_GROUP_LETTERS, "") for group in groups})


class Deleter(Protocol):
    """The controller, as the sweep sees it."""

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""

    async def delete_idle(self, queues: Sequence[IdleQueue]) -> Sequence[Topic | ApiError]:
        """Delete topics; return the deleted topic or the error of each."""


class IdleQueueSweep:
    """Deletes idle queues while this broker is the controller. ``deleted`` counts them."""

    def __init__(self, store: MetadataStore, metadata: MetadataCache, controller: Deleter) -> None:
        self._store = store
        self._metadata = metadata
        self._controller = controller
        self.deleted = 0

    async def sweep(self) -> None:
        """Delete the queues that all their leaders have voted for; the log names some of them."""
        if not self._controller.is_active:
            return
        try:
            ballots = await self._ballots()
        except StoreError as error:
            _log.info("the votes for idle queues cannot be read, retrying: %s", error)
            return
        if not any(ballot.node.votes for ballot in ballots):
            return
        found = idle_queues(
            self._metadata.topics_by_id, self._metadata.brokers, ballots, self._spared()
        )
        if not found:
            return
        outcomes = await self._controller.delete_idle(found)
        deleted = [one.name for one in outcomes if isinstance(one, Topic)]
        self.deleted += len(deleted)
        if deleted:
            more = len(deleted) - _NAMED
            _log.info(
                "deleted %d idle queues without jobs (qbus.queue.idle.ms): %s%s",
                len(deleted),
                ", ".join(deleted[:_NAMED]),
                f" and {more} more" if more > 0 else "",
            )
        if len(deleted) < len(found):
            _log.debug("%d idle queues are used again, and kept", len(found) - len(deleted))

    def _spared(self) -> Collection[str]:
        topics, groups = self._metadata.topics.values(), self._metadata.group_configs.values()
        return dead_letter_topics(topics, groups)

    async def _ballots(self) -> list[Ballot]:
        names = await self._store.children(IDLE_QUEUES)
        brokers = [int(name) for name in names if name.isdigit()]
        nodes = await self._store.get_many([IdleQueuesNode.path(broker) for broker in brokers])
        ballots = []
        for broker in brokers:
            node = nodes.get(IdleQueuesNode.path(broker))
            if node is not None:
                try:
                    ballots.append(Ballot(broker, node.version, IdleQueuesNode.decode(node.data)))
                except MalformedNode as error:
                    _log.warning("the votes of broker %d are ignored: %s", broker, error)
        return ballots
