"""What users ask for: every decision about topics and configuration is one transaction.

Any broker decides, the controller or not. A decision is made from the metadata cache by pure
planners, and its transaction checks the versions it was made from, that of the controller's epoch
among them. If somebody was faster, it is made anew. It is answered when this broker itself knows of
it, and all who follow its metadata are done with it; so they must not wait for the controller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from typing import Generic, NamedTuple, TypeVar

from qbus.clock import Clock
from qbus.config import BrokerConfig, check_topic_config
from qbus.errors import ApiError, ConfigError, ErrorCode
from qbus.metadata import Create, MetadataStore, NodeError, Op, Set, StoreError, TransactionTooLarge
from qbus.metadata.feed import decide
from qbus.metadata.znodes import ChangeNode, ConfigNode, TopicNode
from qbus.names import collision_key

from ..metadata.cache import MetadataCache
from ..metadata.image import Topic
from .configs import check_dynamic
from .controller_election import ControllerElection
from .controller_loop import ControllerLoop
from .elections import ElectionType, current_view
from .leader_elector import ControlledShutdown, LeaderElector
from .reassignments import begin, cancel, writes
from .topics import DEFAULT, NewTopic, TopicPlan, TopicPlanner, check_count, delete

_ATTEMPTS = 5

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Item = TypeVar("Item")


class Growth(NamedTuple):
    """More partitions for a topic, ``total`` with those it has; the added ones' replicas, maybe."""

    topic: str
    total: int
    assignment: Sequence[Sequence[int]] | None = None


class Reassignment(NamedTuple):
    """Where a topic's partitions shall be, by their indexes; None: where they were."""

    topic: str
    targets: Mapping[int, Sequence[int] | None]


class ConfigChange(NamedTuple):
    """A change of the configuration of ``name``: of what is set now, ``edited`` makes what will be.

    ``edited`` raises ApiError or ConfigError.
    """

    name: str
    edited: Callable[[Mapping[str, str]], dict[str, str]]


class _Decision(NamedTuple, Generic[T_co]):
    """What to write, if anything, what that changes, and what the outcome is then."""

    outcome: T_co
    ops: Sequence[Op]
    change: ChangeNode


class Controller:
    """Creates, grows and deletes topics, and alters configurations.

    Each item is carried out or refused for itself. Beside what is the item's own fault, a refusal
    is POLICY_VIOLATION when it is more than the store takes at once, REQUEST_TIMED_OUT when nobody
    knows whether it was carried out, or NOT_CONTROLLER when others change the same all the time.
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
        self._deciding = asyncio.Lock()
        self._loop = ControllerLoop(store, metadata, self._election, config)
        self._shutdown = ControlledShutdown(store, metadata, config)
        self._elector = LeaderElector(store, metadata)
        random = random or Random()  # noqa: S311 - it spreads partitions, and guards nothing
        self._planner = TopicPlanner(metadata, config, random)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._election.is_held

    @property
    def elections(self) -> int:
        """How many partitions' states this broker wrote as the controller."""
        return self._loop.elections

    async def start(self, broker_epoch: int) -> None:
        """Become the controller if none is, decide what is due, and keep watch.

        Call it when the broker is registered under ``broker_epoch``, and the metadata cache knows
        of that.

        Raises:
            StoreUnavailable: the store cannot be used.
        """
        self._election.broker_epoch = broker_epoch
        await self._loop.start()

    async def stop(self) -> None:
        """Decide nothing more by itself."""
        await self._loop.stop()

    async def hand_over(self) -> None:
        """Have others lead what this broker leads; waits for those who can soon.

        Raises:
            StoreUnavailable: the store cannot be used.
        """
        await self._shutdown.carry_out()

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicPlan | ApiError]:
        """Create topics; of each what was made, or why not."""
        refused = self._refuse_together(topics)

        async def plan(topic: NewTopic) -> _Decision[TopicPlan]:
            if topic.name in refused:
                raise refused[topic.name]
            plan = self._planner.create(topic, self._metadata.cluster.controller_epoch)
            return _Decision(plan, plan.ops, ChangeNode(topics=(topic.name,)))

        return await self._carry_out(plan, topics, dry=validate_only)

    async def delete_topics(self, names: Sequence[str]) -> list[Topic | ApiError]:
        """Delete topics; of each what it was, or why it was not deleted."""

        async def plan(name: str) -> _Decision[Topic]:
            topic = self._planner.existing(name)
            nodes = await self._store.tree(TopicNode.path(name))
            return _Decision(topic, delete(topic, nodes), ChangeNode(topics=(name,)))

        return await self._carry_out(plan, names)

    async def create_partitions(
        self, growths: Sequence[Growth], *, validate_only: bool = False
    ) -> list[ApiError | None]:
        """Add partitions to topics."""

        async def plan(growth: Growth) -> _Decision[None]:
            epoch = self._metadata.cluster.controller_epoch
            ops = self._planner.grow(growth.topic, growth.total, growth.assignment, epoch)
            return _Decision(None, ops, ChangeNode(topics=(growth.topic,)))

        return await self._carry_out(plan, growths, dry=validate_only)

    async def reassign(
        self, reassignments: Sequence[Reassignment], *, may_change_factor: bool = True
    ) -> list[dict[int, ApiError | None]]:
        """Begin or cancel moves of topics' partitions; of each partition why not, if so."""

        async def plan(wanted: Reassignment) -> _Decision[dict[int, ApiError | None]]:
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
            return _Decision(outcomes, writes(topic, moves), ChangeNode(topics=(topic.name,)))

        decided = await self._carry_out(plan, reassignments)
        return [
            dict.fromkeys(wanted.targets, outcome) if isinstance(outcome, ApiError) else outcome
            for wanted, outcome in zip(reassignments, decided, strict=True)
        ]

    async def elect_leaders(
        self, kind: ElectionType, partitions: Collection[tuple[str, int]] | None
    ) -> dict[tuple[str, int], ApiError | None]:
        """Elect leaders for partitions; None: for all that need it. Of each why not, if so."""
        return await self._elector.elect(kind, partitions)

    async def alter_topic_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[ApiError | None]:
        """Change what is configured for topics, which ``name`` names."""

        async def plan(change: ConfigChange) -> _Decision[None]:
            topic = self._planner.existing(change.name)
            try:
                config = change.edited(topic.config)
                check_topic_config(config)
            except ConfigError as error:
                raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
            path = ConfigNode.topic_path(topic.name)
            ops = _write_config(path, topic.config, config, topic.config_version)
            if ops:
                ops = [*topic.guards, *ops]
            return _Decision(None, ops, ChangeNode(configs=(topic.name,)))

        return await self._carry_out(plan, changes, dry=validate_only)

    async def alter_broker_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[ApiError | None]:
        """Change what is configured dynamically for brokers: ``name`` is an id, or ALL_BROKERS."""

        async def plan(change: ConfigChange) -> _Decision[None]:
            path = ConfigNode.broker_path(change.name)
            node = await self._store.get(path)
            current = ConfigNode.decode(node.data).config if node else {}
            try:
                config = change.edited(current)
                check_dynamic(BrokerConfig, config)
            except ConfigError as error:  # Kafka's code for brokers, other than for topics
                raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
            ops = _write_config(path, current, config, node.version if node else -1)
            return _Decision(None, ops, ChangeNode(brokers=(change.name,)))

        return await self._carry_out(plan, changes, dry=validate_only)

    async def _carry_out(
        self,
        plan: Callable[[Item], Awaitable[_Decision[T]]],
        items: Sequence[Item],
        *,
        dry: bool = False,
    ) -> list[T | ApiError]:
        """Decide on each item and write that; of each the outcome, or why it was refused.

        ``dry``: decide only.
        """
        async with self._deciding:
            tries = [self._try(plan, item, dry=dry) for item in items]
            done = await asyncio.gather(*tries)
            written = [sequence for _, sequence in done if sequence is not None]
            if written:
                try:
                    await self._metadata.applied(max(written))
                except StoreError as error:
                    lost = _unknown(error)
                    return [lost if sequence is not None else outcome for outcome, sequence in done]
            return [outcome for outcome, _ in done]

    async def _try(
        self, plan: Callable[[Item], Awaitable[_Decision[T]]], item: Item, *, dry: bool
    ) -> tuple[T | ApiError, int | None]:
        """The outcome, and the sequence number of the change if something was written."""
        try:
            for _ in range(_ATTEMPTS):
                fence = self._metadata.fence()
                decision = await plan(item)
                if dry or not decision.ops:
                    return decision.outcome, None
                try:
                    written = await decide(self._store, [fence], decision.ops, decision.change)
                except NodeError:  # somebody was faster: learn what they did
                    await self._metadata.catch_up()
                    continue
                return decision.outcome, written
        except ApiError as error:
            return error, None
        except TransactionTooLarge as error:
            return ApiError(ErrorCode.POLICY_VIOLATION, f"too much at once: {error}"), None
        except StoreError as error:
            return _unknown(error), None
        return ApiError(ErrorCode.NOT_CONTROLLER, "others change the same all the time"), None

    def _refuse_together(self, topics: Iterable[NewTopic]) -> dict[str, ApiError]:
        """Topics of one request that cannot be created because of the others in it."""
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


def _write_config(
    path: str, current: Mapping[str, str], config: Mapping[str, str], version: int
) -> list[Op]:
    """Store ``config``. ``version`` is that of the node with ``current``; -1: there is none."""
    if config == current:
        return []
    data = ConfigNode(config).encode()
    return [Create(path, data) if version < 0 else Set(path, data, version)]


def _unknown(error: StoreError) -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"nobody knows whether it was done: {error}")
