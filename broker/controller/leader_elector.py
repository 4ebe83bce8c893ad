"""Leaders change on request: a user asks for an election, a broker stops, a broker has started.

A broker that stops hands over what it leads before it leaves (controlled shutdown). A broker that
has started resigns what it led before, because it no longer knows what it did as a leader. Where it
may have lost records, it also leaves the ISR until it has caught up (see
:mod:`qbus.broker.metadata.partition_states`). It raises its epoch first, so that no change under
way can still add its former registration to an ISR (KIP-903).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from qbus.config import BrokerConfig
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import MetadataStore, StoreError
from qbus.metadata.znodes import NO_LEADER, PartitionStateNode

from ..metadata.cache import MetadataCache
from ..metadata.image import PartitionInfo, Topic
from ..metadata.partition_states import Policy, elect, forgetting, resigning
from .elections import (
    ElectionType,
    StateChange,
    TopicRules,
    current_view,
    elected_state,
    rules_of,
    shutdown_elections,
)
from .state_writer import StateWriter

_log = logging.getLogger(__name__)

Key = tuple[str, int]

HasLost = Callable[[Topic, int], bool]
"""Tells whether this broker may have lost records of a partition."""


class LeaderElector:
    """Elects leaders on request (KIP-460)."""

    def __init__(self, store: MetadataStore, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._writer = StateWriter(store, metadata)

    async def elect(
        self, kind: ElectionType, partitions: Collection[Key] | None
    ) -> dict[Key, ApiError | None]:
        """Elect leaders; return the error of each partition, or None.

        None stands for all partitions; those that need no election are left out of the result.
        """
        wanted = self._all() if partitions is None else list(dict.fromkeys(partitions))
        outcomes: dict[Key, ApiError | None] = {}
        tried: set[Key] = set()

        def due() -> list[StateChange]:
            changes = []
            for key in wanted:
                if key in outcomes:
                    continue
                try:
                    changes.append(self._change(key, kind))
                    tried.add(key)
                except ApiError as error:
                    is_done = key in tried and error.code is ErrorCode.ELECTION_NOT_NEEDED
                    outcomes[key] = None if is_done else error
            return changes

        try:
            await self._writer.write_due(due, lambda: [self._metadata.fence()])
        except StoreError as error:
            unknown = ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the outcome is unknown: {error}")
            outcomes = {key: outcomes.get(key, unknown) for key in wanted}
        if partitions is None:
            return {key: error for key, error in outcomes.items() if not _is_idle(error)}
        return {key: outcomes[key] for key in wanted}

    def _all(self) -> list[Key]:
        return [
            (topic.name, index)
            for topic in self._metadata.topics.values()
            for index in range(len(topic.partitions))
        ]

    def _change(self, key: Key, kind: ElectionType) -> StateChange:
        name, index = key
        topic = self._metadata.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}"
            )
        partition = topic.partitions[index]
        brokers = self._metadata.brokers.values()
        view = current_view(self._metadata).without(
            {broker.id for broker in brokers if key in broker.offline}
        )
        state = elected_state(partition, kind, view, view.rules(topic))
        return StateChange(topic, index, state, partition.version)


def _is_idle(error: ApiError | None) -> bool:
    return error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED


class ControlledShutdown:
    """Moves leadership away from one broker, which announced before that it stops."""

    def __init__(self, store: MetadataStore, metadata: MetadataCache, config: BrokerConfig) -> None:
        self._metadata = metadata
        self._node_id = config.node_id
        retries = config.controlled_shutdown_max_retries
        self._timeout_s = retries * config.controlled_shutdown_retry_backoff_ms / 1000
        self._writer = StateWriter(store, metadata)

    async def carry_out(self) -> None:
        """Elect other replicas in sync, and wait a while for more to come in sync.

        Raises:
            StoreUnavailable: the store cannot be used.
        """
        changed = asyncio.Event()
        self._metadata.subscribe(lambda _: changed.set())
        handed = await self._hand_over()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                while any(map(self._has_other_broker, self._led_partitions())):
                    await changed.wait()
                    changed.clear()
                    handed += await self._hand_over()
        left = len(self._led_partitions())
        _log.info("handed over %d partitions; %d have no other replica to lead", handed, left)

    async def _hand_over(self) -> int:
        metadata = self._metadata
        return await self._writer.write_due(
            lambda: shutdown_elections(
                metadata.topics.values(), self._node_id, current_view(metadata)
            ),
            lambda: [metadata.fence()],
        )

    def _led_partitions(self) -> list[PartitionInfo]:
        return [
            partition
            for topic in self._metadata.topics.values()
            for partition in topic.partitions
            if partition.leader == self._node_id
        ]

    def _has_other_broker(self, partition: PartitionInfo) -> bool:
        brokers = self._metadata.brokers
        others = (
            brokers.get(replica) for replica in partition.replicas if replica != self._node_id
        )
        return any(other is not None and not other.is_stopping for other in others)


async def resign(
    store: MetadataStore,
    metadata: MetadataCache,
    node_id: int,
    has_lost: HasLost,
    *,
    is_alone: bool = False,
) -> int:
    """Write states in which ``node_id`` no longer leads; return their number.

    ``is_alone``: there can be no other broker, so this one is elected again at once.

    Raises:
        StoreUnavailable: the store cannot be used.
    """
    at_first = {
        (topic.id, index): partition.leader_epoch
        for topic in metadata.topics.values()
        for index, partition in enumerate(topic.partitions)
    }
    epoch = metadata.cluster.controller_epoch

    def due() -> list[StateChange]:
        changes = []
        for topic in metadata.topics.values():
            rules = rules_of(metadata.topic_config(topic))
            for index, partition in enumerate(topic.partitions):
                is_led_anew = partition.leader_epoch != at_first.get((topic.id, index))
                if partition.version < 0 or (is_alone and is_led_anew):
                    continue
                lost = _holds(partition, node_id) and has_lost(topic, index)
                before = partition.state(epoch)
                state = resigned_state(before, node_id, rules.wanted(len(partition.replicas)), lost)
                if is_alone and state.leader == NO_LEADER:
                    state = _led_again(state, partition.replicas, node_id, rules)
                if state != before:
                    changes.append(StateChange(topic, index, state, partition.version))
        return changes

    return await StateWriter(store, metadata).write_due(due, lambda: [metadata.fence()])


def resigned_state(
    state: PartitionStateNode, node_id: int, wanted: Policy, has_lost: bool
) -> PartitionStateNode:
    """Return the state without ``node_id`` as leader and, if it has lost records, not in sync."""
    resigned = resigning(state, node_id)
    return forgetting(resigned, node_id, wanted) if has_lost else resigned


def _led_again(
    state: PartitionStateNode, replicas: Sequence[int], node_id: int, rules: TopicRules
) -> PartitionStateNode:
    wanted = rules.wanted(len(replicas))
    return elect(state, replicas, {node_id}, state.controller_epoch, wanted=wanted)


def _holds(partition: PartitionInfo, node_id: int) -> bool:
    return node_id in partition.isr or node_id in partition.elr
