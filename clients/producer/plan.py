"""What to send next, and to which brokers. The caller holds the accumulator's lock; no IO."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from qbus.errors import ApiError
from qbus.service.backoff import Backoff

from ..net.bootstrap import Address
from ..net.connection import Connection
from ..net.metadata import ClusterMetadata
from ..types import TopicPartition
from .accumulator import Accumulator
from .batch import Batch, ProducerIdentity
from .options import ProducerOptions
from .queue import PartitionQueue
from .transaction import TransactionState


class NodeState:
    """One broker: its connection, and when it may be used. Times are in seconds, monotonic."""

    def __init__(self, node_id: int, first_backoff: float, longest_backoff: float) -> None:
        self.id = node_id
        self.in_flight = 0
        self.connecting: asyncio.Task[None] | None = None
        self.muted_until = 0.0
        self.is_silent = False
        self._connection: Connection | None = None
        self._address: Address | None = None
        self._backoff = Backoff(first_backoff, longest_backoff)

    def connection(self, address: Address | None) -> Connection | None:
        """Return the open connection, if ``address`` is still the broker's."""
        if self._connection is None or self._address != address or not self._connection.is_open:
            return None
        return self._connection

    def connected(self, connection: Connection, address: Address) -> None:
        """Use this connection from now on."""
        self._connection, self._address = connection, address
        self.is_silent = False

    def answered(self, now: float, throttle_ms: int) -> None:
        """Note a response; the broker may ask the producer to pause (KIP-219)."""
        self._backoff.succeeded()
        self.muted_until = max(self.muted_until, now + throttle_ms / 1000)

    def failed(self, now: float) -> None:
        """Back off from a broker that cannot be reached or does not answer."""
        self.is_silent = True
        self.muted_until = max(self.muted_until, now + self._backoff.failed())


MAX_REQUEST_BYTES = 2 * 1024 * 1024
"""Bytes from which on a request takes no more batches.

Brokers handle a request as a whole: one of 10 MB costs Qbus twice as much as ten of 1 MB, because
it leaves the caches.
"""
_IDLE = 1.0


@dataclass
class Plan:
    """What can be sent now, and what prevents sending more."""

    requests: list[tuple[NodeState, Connection, list[Batch]]] = field(default_factory=list)
    to_connect: list[NodeState] = field(default_factory=list)
    unknown_topics: set[str] = field(default_factory=set)
    needs_identity: bool = False
    unadmitted: set[TopicPartition] = field(default_factory=set)
    """Partitions that the coordinator of the transaction must hear of first."""
    pause: float = _IDLE
    """Seconds until there is more to send, if nothing happens before."""

    def again_at(self, at: float, now: float) -> None:
        """Plan again at that time at the latest."""
        self.pause = min(self.pause, max(0.0, at - now))


class Planner:
    """Finds the batches that can be sent, and the brokers that they go to."""

    def __init__(
        self,
        accumulator: Accumulator,
        metadata: ClusterMetadata,
        options: ProducerOptions,
        transaction: TransactionState | None = None,
    ) -> None:
        self._transaction = transaction
        self.identity: ProducerIdentity | None = None
        self._accumulator = accumulator
        self._metadata = metadata
        self._options = options
        self._nodes: dict[int, NodeState] = {}

    def plan(self, now: float) -> Plan:
        """Take the batches that are due. ``now``: seconds of the monotonic clock."""
        plan = Plan()
        if self._accumulator.failure is not None:
            return plan
        self._accumulator.router.silent = frozenset(
            node_id for node_id, node in self._nodes.items() if node.is_silent
        )
        led, lingering = self._due(now, plan)
        if led:
            self._take_along(lingering, led, now)
        for node, queues in led.items():
            self._fill(node, queues, now, plan)
        for queue in chain(lingering, *led.values()):
            at = queue.next_at(self._options.linger)
            if at is not None and at > now:
                plan.again_at(at, now)
        for node in self._nodes.values():  # so that records can go there again
            if node.is_silent and node not in led and node.id in self._metadata.nodes:
                self._connect(node, now, plan)
        self._accumulator.turn_at = now + plan.pause
        return plan

    def address(self, node: NodeState) -> Address | None:
        """Return the known address of a broker."""
        known = self._metadata.nodes.get(node.id)
        return None if known is None else (known.host, known.port)

    def led_by(self, node: NodeState) -> set[str]:
        """Return the topics with something to send to partitions that this broker leads."""
        return {key.topic for key in self._accumulator.active if self._leader(key) == node.id}

    def _due(
        self, now: float, plan: Plan
    ) -> tuple[dict[NodeState, list[PartitionQueue]], list[PartitionQueue]]:
        """Return the queues with a batch that is due, by broker, and those whose batch lingers."""
        led: dict[NodeState, list[PartitionQueue]] = {}
        lingering: list[PartitionQueue] = []
        for key, queue in list(self._accumulator.active.items()):
            if queue.is_empty:
                del self._accumulator.active[key]
                continue
            at = queue.next_at(self._options.linger)
            if at is not None and at > now:
                lingering.append(queue)
            elif at is not None:
                self._assign(queue, led, plan)
        return led, lingering

    def _assign(
        self, queue: PartitionQueue, led: dict[NodeState, list[PartitionQueue]], plan: Plan
    ) -> None:
        """Find the broker to send to; without one, move what may go to another partition."""
        topic, partition = queue.partition
        if not self._is_available(queue.partition) and self._move(queue):
            plan.pause = 0.0
        if queue.is_empty:
            return
        try:
            leader = self._metadata.leader(topic, partition)
        except ApiError as error:
            queue.fail_attempt(error)
            plan.unknown_topics.add(topic)
            return
        node = self._nodes.get(leader)
        if node is None:
            node = self._nodes[leader] = NodeState(
                leader, self._options.retry_backoff, self._options.retry_backoff_max
            )
        led.setdefault(node, []).append(queue)

    def _take_along(
        self,
        lingering: Iterable[PartitionQueue],
        led: dict[NodeState, list[PartitionQueue]],
        now: float,
    ) -> None:
        """Let batches that have lingered for half their time go with a request to their broker.

        So many partitions share few requests, instead of each being sent at its own time.
        """
        for queue in lingering:
            half = queue.next_at(self._options.linger / 2)
            if half is None or half > now:
                continue
            node = self._nodes.get(self._leader(queue.partition))
            if node in led and not self._metadata.missing([queue.partition.topic]):
                led[node].append(queue)

    def _fill(self, node: NodeState, queues: list[PartitionQueue], now: float, plan: Plan) -> None:
        """Plan as many requests to a broker as may be in flight."""
        connection = node.connection(self.address(node))
        if connection is None:
            self._connect(node, now, plan)
            return
        if node.muted_until > now:
            plan.again_at(node.muted_until, now)
            return
        while node.in_flight < self._options.max_in_flight:
            batches = self._take(queues, now, plan)
            if not batches:
                break
            node.in_flight += 1
            plan.requests.append((node, connection, batches))

    def _take(self, queues: Iterable[PartitionQueue], now: float, plan: Plan) -> list[Batch]:
        """Take a batch of each partition that has one due, as long as they fit one request; those
        that have waited longest first.
        """
        batches: list[Batch] = []
        size = 0
        for queue in sorted(queues, key=PartitionQueue.since):
            if size >= MAX_REQUEST_BYTES:
                plan.pause = 0.0
                break
            if self._options.is_idempotent and not self._is_identified(queue, now):
                plan.needs_identity = True
                continue
            if self._transaction is not None and not self._transaction.admits(queue.partition):
                plan.unadmitted.add(queue.partition)
                continue
            batch = queue.take(now, self._options.linger / 2)
            if batch is not None:
                queue.number(batch)
                batches.append(batch)
                size += batch.size
        return batches

    def _is_identified(self, queue: PartitionQueue, now: float) -> bool:
        if queue.identity is None:
            if self.identity is not None and self.identity.producer_id == queue.rejected_id:
                self.identity = None
            if self.identity is None:
                return False
            queue.set_identity(self.identity, now)
        return True

    def _connect(self, node: NodeState, now: float, plan: Plan) -> None:
        if node.connecting is not None:
            return
        if node.muted_until > now:
            plan.again_at(node.muted_until, now)
        else:
            plan.to_connect.append(node)

    # Partitions without a broker.

    def _leader(self, key: TopicPartition) -> int:
        known = self._metadata.topics.get(key.topic)
        if known is None or key.partition >= len(known.partitions):
            return -1
        return known.partitions[key.partition].leader

    def _is_available(self, key: TopicPartition) -> bool:
        leader = self._leader(key)
        return leader >= 0 and leader not in self._accumulator.router.silent

    def _move(self, queue: PartitionQueue) -> bool:
        """Move batches that may go to any partition to one that can be written to."""
        topic = self._metadata.topics.get(queue.partition.topic)
        if topic is None:
            return False
        target = TopicPartition(topic.name, self._accumulator.router.current(topic))
        if target == queue.partition or not self._is_available(target):
            return False
        batches = queue.movable()
        other = self._accumulator.queue(target)
        for batch in batches:
            batch.partition = target
            other.push(batch)
        if batches:
            self._accumulator.active[target] = other
        return bool(batches)
