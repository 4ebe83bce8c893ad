"""Requests of users: every decision about topics and configuration is one transaction.

Every broker can decide, whether it is the controller or not. Pure planners make a decision from the
metadata cache, and its transaction checks the versions it was made from, including the controller's
epoch; many decisions share one. If another write came first, the decision is made again. A request
is answered when this broker's cache has the change and all subscribers of the cache have handled
it, so subscribers must not wait for the controller.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import NamedTuple, TypeVar

from qbus.clock import Clock
from qbus.config import BrokerConfig, check_share_group_config, check_topic_config
from qbus.errors import ApiError, ConfigError, ErrorCode
from qbus.metadata import Create, MetadataStore, Op, Set
from qbus.metadata.client_quotas import QuotaEntity
from qbus.metadata.znodes import DELETED, ChangeNode, ConfigNode, TopicChange, TopicNode
from qbus.names import collision_key

from ..metadata.cache import MetadataCache
from ..metadata.image import Topic
from .acls import AclEditor
from .configs import check_dynamic
from .controller_election import ControllerElection
from .controller_loop import ControllerLoop
from .decisions import Decision, DecisionQueue, Planned
from .elections import ElectionType, current_view
from .idle_queues import IdleQueue
from .leader_elector import ControlledShutdown, LeaderElector
from .reassignments import begin, cancel, writes
from .topics import (
    DEFAULT,
    NewTopic,
    TopicPlan,
    TopicPlanner,
    check_count,
    delete,
    delete_unchanged,
    nodes_of,
    renew,
)

T = TypeVar("T")
Item = TypeVar("Item")


class Growth(NamedTuple):
    """More partitions for a topic, up to ``total``, optionally with the new ones' replicas."""

    topic: str
    total: int
    assignment: Sequence[Sequence[int]] | None = None


class Reassignment(NamedTuple):
    """New replicas of a topic's partitions, by index; None cancels a reassignment."""

    topic: str
    targets: Mapping[int, Sequence[int] | None]


class ConfigChange(NamedTuple):
    """A change of the configuration of ``name``.

    ``edited`` maps the current configuration to the new one; it raises ApiError or ConfigError.
    """

    name: str
    edited: Callable[[Mapping[str, str]], dict[str, str]]


class Controller:
    """Creates, grows and deletes topics, and alters configurations; ``acls`` edits access rules.

    Each item of a request succeeds or fails alone. Besides errors of the item itself, there are
    POLICY_VIOLATION (too large for one transaction), UNKNOWN_SERVER_ERROR (the store refuses it for
    another reason), REQUEST_TIMED_OUT (the outcome is unknown) and NOT_CONTROLLER (other writes
    kept coming first).
    """

    def __init__(
        self,
        store: MetadataStore,
        metadata: MetadataCache,
        config: BrokerConfig,
        clock: Clock,
        random: Random | None = None,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._config = config
        self._election = ControllerElection(store, metadata, config.node_id, clock)
        self._decisions = DecisionQueue(store, metadata)
        self.acls = AclEditor(store, metadata, self._decisions)
        self._loop = ControllerLoop(store, metadata, self._election, config)
        self._shutdown = ControlledShutdown(store, metadata, config)
        self._elector = LeaderElector(store, metadata)
        random = random or Random()  # noqa: S311 - not for secrets
        self._planner = TopicPlanner(metadata, config, random)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._election.is_held

    @property
    def elections(self) -> int:
        """Number of partition states that this broker wrote as the controller."""
        return self._loop.elections

    async def start(self, broker_epoch: int) -> None:
        """Stand for controller, decide what is due, and follow changes.

        Call it after the broker registered under ``broker_epoch`` and the metadata cache has that.

        Raises:
            StoreUnavailable: the store cannot be used.
        """
        self._election.broker_epoch = broker_epoch
        await self._loop.start()

    async def stop(self) -> None:
        """Stop deciding on its own account."""
        await self._loop.stop()

    async def hand_over(self) -> None:
        """Move leadership to other brokers; wait for those that can take it soon.

        Raises:
            StoreUnavailable: the store cannot be used.
        """
        await self._shutdown.carry_out()

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicPlan | ApiError]:
        """Create topics; return the plan or the error of each."""
        refused = self._refuse_together(topics)

        def plan(topic: NewTopic, _: int) -> Decision[TopicPlan]:
            if topic.name in refused:
                raise refused[topic.name]
            plan = self._planner.create(topic, self._metadata.cluster.controller_epoch)
            return Decision(plan, plan.ops, _told(topic.name, plan.change))

        return await self._carry_out(plan, topics, lambda new: _topic(new.name), dry=validate_only)

    async def delete_topics(self, names: Sequence[str]) -> list[Topic | ApiError]:
        """Delete topics; return the deleted topic or the error of each."""

        def decided(topic: Topic, below: Iterable[str]) -> Decision[Topic]:
            change = _told(topic.name, TopicChange(topic.id, DELETED))
            return Decision(topic, delete(topic, below), change)

        async def plan_again(topic: Topic) -> Decision[Topic]:
            return decided(topic, await self._store.tree(TopicNode.path(topic.name)))

        def plan(name: str, attempt: int) -> Planned[Topic]:
            topic = self._planner.existing(name)
            # What is known suffices as a rule. There is more where others have added nodes.
            return plan_again(topic) if attempt else decided(topic, nodes_of(topic))

        return await self._carry_out(plan, names, _topic)

    async def delete_idle(self, queues: Sequence[IdleQueue]) -> list[Topic | ApiError]:
        """Delete topics that are idle queues; return the deleted topic or the error of each.

        One whose votes, state or configuration has changed is kept: NOT_CONTROLLER.
        """

        def plan(queue: IdleQueue, attempt: int) -> Decision[Topic]:
            topic = queue.topic
            if attempt or self._metadata.topics.get(topic.name) is not topic:
                raise ApiError(ErrorCode.NOT_CONTROLLER, f"{topic.name} has changed")
            change = _told(topic.name, TopicChange(topic.id, DELETED))
            return Decision(topic, [*queue.checks, *delete_unchanged(topic)], change)

        return await self._carry_out(plan, queues, lambda queue: _topic(queue.topic.name))

    async def create_partitions(
        self, growths: Sequence[Growth], *, validate_only: bool = False
    ) -> list[ApiError | None]:
        """Add partitions to topics."""

        def plan(growth: Growth, attempt: int) -> Decision[None]:
            epoch = self._metadata.cluster.controller_epoch
            ops, change = self._planner.grow(*growth, epoch, is_first=attempt == 0)
            return Decision(None, ops, _told(growth.topic, change))

        return await self._carry_out(
            plan, growths, lambda growth: _topic(growth.topic), dry=validate_only
        )

    async def reassign(
        self, reassignments: Sequence[Reassignment], *, may_change_factor: bool = True
    ) -> list[dict[int, ApiError | None]]:
        """Begin or cancel reassignments; return the error of each partition, or None."""

        def plan(wanted: Reassignment, _: int) -> Decision[dict[int, ApiError | None]]:
            topic = self._planner.existing(wanted.topic)
            view = current_view(self._metadata)
            outcomes: dict[int, ApiError | None] = {}
            moves = {}
            for index, target in wanted.targets.items():
                try:
                    partition = self._planner.partition(topic, index)
                    rules = view.rules(topic)
                    moves[index] = (
                        cancel(partition, view, rules)
                        if target is None
                        else begin(
                            partition, target, view, rules, may_change_factor=may_change_factor
                        )
                    )
                    outcomes[index] = None
                except ApiError as error:
                    outcomes[index] = error
            return Decision(outcomes, writes(topic, moves), ChangeNode(topics=(topic.name,)))

        decided = await self._carry_out(plan, reassignments, lambda wanted: _topic(wanted.topic))
        return [
            dict.fromkeys(wanted.targets, outcome) if isinstance(outcome, ApiError) else outcome
            for wanted, outcome in zip(reassignments, decided, strict=True)
        ]

    async def elect_leaders(
        self, kind: ElectionType, partitions: Collection[tuple[str, int]] | None
    ) -> dict[tuple[str, int], ApiError | None]:
        """Elect leaders for partitions (None: all that need it); return errors by partition."""
        return await self._elector.elect(kind, partitions)

    async def alter_topic_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[ApiError | None]:
        """Alter configurations of topics."""

        def plan(change: ConfigChange, _: int) -> Decision[None]:
            topic = self._planner.existing(change.name)
            try:
                config = change.edited(topic.config)
                check_topic_config(config)
            except ConfigError as error:
                raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
            path = ConfigNode.topic_path(topic.name)
            ops = _write_config(path, topic.config, config, topic.config_version)
            if ops:
                first = [] if topic.config_version >= 0 else [renew(topic)]
                ops = [*topic.guards, *first, *ops]
            return Decision(None, ops, ChangeNode(configs=(topic.name,)))

        return await self._carry_out(
            plan, changes, lambda change: _topic(change.name), dry=validate_only
        )

    async def alter_broker_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[ApiError | None]:
        """Alter dynamic configurations of brokers; ``name`` is an id or ALL_BROKERS."""

        async def plan(change: ConfigChange, _: int) -> Decision[None]:
            path = ConfigNode.broker_path(change.name)
            node = await self._store.get(path)
            current = ConfigNode.decode(node.data).config if node else {}
            try:
                config = change.edited(current)
                check_dynamic(BrokerConfig, config)
            except ConfigError as error:  # Kafka's code for brokers differs from that for topics
                raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
            ops = _write_config(path, current, config, node.version if node else -1)
            return Decision(None, ops, ChangeNode(brokers=(change.name,)))

        return await self._carry_out(
            plan, changes, lambda change: _broker(change.name), dry=validate_only
        )

    async def alter_group_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[ApiError | None]:
        """Alter configurations of share groups, which need not exist yet."""

        async def plan(change: ConfigChange, _: int) -> Decision[None]:
            if not change.name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a group has a name")
            path = ConfigNode.group_path(change.name)
            node = await self._store.get(path)
            current = ConfigNode.decode(node.data).config if node else {}
            try:
                config = change.edited(current)
                check_share_group_config(self._config, config)
            except ConfigError as error:
                raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
            ops = _write_config(path, current, config, node.version if node else -1)
            return Decision(None, ops, ChangeNode(groups=(change.name,)))

        return await self._carry_out(
            plan, changes, lambda change: _group(change.name), dry=validate_only
        )

    async def alter_client_quotas(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[ApiError | None]:
        """Alter quotas of users, clients and addresses; ``name`` is a place below ``/config``."""

        async def plan(change: ConfigChange, _: int) -> Decision[None]:
            entity = QuotaEntity.at(change.name)
            if entity is None:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{change.name}: nobody has quotas there")
            node = await self._store.get(entity.path)
            current = ConfigNode.decode_secret(node.data).config if node and node.data else {}
            config = change.edited(current)
            ops = _write_config(entity.path, current, config, node.version if node else -1)
            users = (entity.user,) if entity.user and entity.client_id is None else ()
            return Decision(None, ops, ChangeNode(users=users, quotas=(change.name,)))

        return await self._carry_out(
            plan, changes, lambda change: ("quotas", change.name), dry=validate_only
        )

    async def alter_users(self, changes: Sequence[ConfigChange]) -> list[ApiError | None]:
        """Alter what users log in with; their quotas lie in the same nodes and stay."""

        async def plan(change: ConfigChange, _: int) -> Decision[None]:
            path = ConfigNode.user_path(change.name)
            node = await self._store.get(path)
            current = ConfigNode.decode_secret(node.data).config if node and node.data else {}
            config = change.edited(current)
            ops = _write_config(path, current, config, node.version if node else -1)
            return Decision(None, ops, ChangeNode(users=(change.name,)))

        def about(change: ConfigChange) -> Hashable:
            return "quotas", QuotaEntity(user=change.name).place

        return await self._carry_out(plan, changes, about)

    async def _carry_out(
        self,
        plan: Callable[[Item, int], Planned[T]],
        items: Sequence[Item],
        about: Callable[[Item], Hashable],
        *,
        dry: bool = False,
    ) -> list[T | ApiError]:
        """Decide on each item and write it; return the outcome or the error of each.

        ``about`` names what an item decides on. ``dry`` decides without writing.
        """
        decided: list[T | BaseException] = await asyncio.gather(
            *(self._decisions.put(about(item), partial(plan, item), dry=dry) for item in items),
            return_exceptions=True,
        )
        outcomes: list[T | ApiError] = []
        for outcome in decided:
            if isinstance(outcome, BaseException) and not isinstance(outcome, ApiError):
                raise outcome
            outcomes.append(outcome)
        return outcomes

    def _refuse_together(self, topics: Iterable[NewTopic]) -> dict[str, ApiError]:
        """Errors of topics that cannot be created because of others in the same request."""
        refused: dict[str, ApiError] = {}
        names: dict[str, str] = {}
        partitions = 0
        for topic in topics:
            other = names.setdefault(collision_key(topic.name), topic.name)
            if other != topic.name:
                refused[topic.name] = ApiError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"{topic.name!r} collides with {other!r}: '.' and '_' count as the same",
                )
            count = self._config.num_partitions if topic.partitions == DEFAULT else topic.partitions
            partitions += max(len(topic.assignment) or count, 0)
            try:
                check_count(partitions)
            except ApiError as error:
                refused.setdefault(topic.name, error)
        return refused


def _told(topic: str, change: TopicChange) -> ChangeNode:
    """The change of a topic, with all that is to be known of it."""
    return ChangeNode(topics=(topic,), details={topic: change})


def _topic(name: str) -> Hashable:
    """What decisions about a topic are about: names that collide are one thing."""
    return "topic", collision_key(name)


def _broker(name: str) -> Hashable:
    return "broker", name


def _group(name: str) -> Hashable:
    return "group", name


def _write_config(
    path: str, current: Mapping[str, str], config: Mapping[str, str], version: int
) -> list[Op]:
    """Plan to store ``config``; ``version`` is that of the existing node, or -1."""
    if config == current:
        return []
    data = ConfigNode(config).encode()
    return [Create(path, data) if version < 0 else Set(path, data, version)]
