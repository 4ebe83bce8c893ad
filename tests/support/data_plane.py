"""The part of a broker that keeps partitions, without sockets and without a metadata store."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from qbus.broker.authorization import AccessControl
from qbus.broker.compaction.cleaner import LogCleaner
from qbus.broker.dead_letters import DeadLetters
from qbus.broker.delay import DelayService
from qbus.broker.kafka.context import RequestContext
from qbus.broker.kafka.replica_sessions import ReplicaSessions
from qbus.broker.log import LogConfig, LogManager
from qbus.broker.metadata.cache import Subscriber
from qbus.broker.metadata.image import (
    BrokerConfigChanged,
    BrokerInfo,
    Event,
    PartitionInfo,
    Topic,
    differences,
)
from qbus.broker.metadata.reader import Cluster
from qbus.broker.metrics import Metrics
from qbus.broker.net.memory_budget import MemoryBudget
from qbus.broker.net.peer import Peer
from qbus.broker.partition.partition import Partition
from qbus.broker.partition.registry import log_config
from qbus.broker.partition.replica_manager import ReplicaManager
from qbus.broker.partition_fold import PartitionFold
from qbus.broker.queues import QueueService
from qbus.broker.quotas import ClientQuotas
from qbus.broker.replicator.lazy_fetchers import LazyFetchers
from qbus.clock import ManualClock
from qbus.config import BrokerConfig, ListenerInfo, TopicConfig
from qbus.metadata import Check, MetadataStore, Op, Result, SessionState, Set, StoreError
from qbus.metadata.znodes import CONTROLLER_EPOCH, ControllerNode, PartitionStateNode
from qbus.records import iter_batches, iter_records
from qbus.wire import (
    API,
    ApiKey,
    Struct,
    decode,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)

from .logs import ControlledFiles, DiskControl

NODE = 1
CLUSTER = "cluster-of-tests"

R = TypeVar("R", bound=Struct)


class Metadata:
    """The cluster's metadata, set by a test."""

    def __init__(self, config: BrokerConfig) -> None:
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.suspected: set[tuple[str, int]] = set()
        self.deleted: set[bytes] = set()
        """The ids that the feed tells of as deleted."""
        self.brokers: dict[int, BrokerInfo] = {NODE: BrokerInfo(NODE, "127.0.0.1", 9092)}
        self.cluster = Cluster(self.brokers, ControllerNode(NODE), 1, 0)
        self._config = config
        self._subscribers: list[Subscriber] = []
        self._created = 0
        self._effective: dict[str, tuple[Mapping[str, str], TopicConfig]] = {}

    def subscribe(self, subscriber: Subscriber, *, is_first: bool = False) -> None:
        self._subscribers.insert(0 if is_first else len(self._subscribers), subscriber)

    def fence(self) -> Check:
        return Check(CONTROLLER_EPOCH, self.cluster.epoch_version)

    def is_live(self, broker: int, epoch: int) -> bool:
        known = self.brokers.get(broker)
        return known is not None and known.epoch == epoch and not known.is_stopping

    def forget_subscribers(self) -> None:
        """Tell nobody any more, and begin as a new process does."""
        self._subscribers.clear()
        self._effective.clear()

    async def deleted_topics(self) -> set[bytes]:
        return self.deleted

    def topic_config(self, topic: Topic) -> TopicConfig:
        known = self._effective.get(topic.name)
        if known is None or known[0] != topic.config:
            known = self._effective[topic.name] = (
                topic.config,
                TopicConfig(self._config, topic.config),
            )
        return known[1]

    def new_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        leader: int = NODE,
    ) -> Topic:
        """A topic with an id that no other has; not put anywhere."""
        self._created += 1
        info = PartitionInfo(leader, 0, (leader,), (leader,))
        return Topic(name, self._created.to_bytes(16), (info,) * partitions, config or {})

    async def put(self, topic: Topic) -> Topic:
        """Create a topic, or change the one of its name; returns when everyone followed."""
        before = self.topics.get(topic.name)
        if before is not None:
            del self.topics_by_id[before.id]
        self.topics[topic.name] = self.topics_by_id[topic.id] = topic
        await self.publish(*differences(before, topic))
        return topic

    async def remove(self, name: str) -> None:
        """Delete a topic."""
        topic = self.topics.pop(name)
        del self.topics_by_id[topic.id]
        await self.publish(*differences(topic, None))

    async def publish(self, *events: Event) -> None:
        """Tell the subscribers, one after the other."""
        if any(isinstance(event, BrokerConfigChanged) for event in events):
            self._effective.clear()
        for subscriber in self._subscribers:
            outcome = subscriber(events)
            if outcome is not None:
                await outcome


class Store:
    """A metadata store that takes every transaction, unless a test has ``failures`` for it."""

    def __init__(self) -> None:
        self.state = SessionState.CONNECTED
        self.transactions: list[list[Op]] = []
        self.failures: list[StoreError] = []
        self._callbacks: list[Callable[[SessionState], None]] = []

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        self._callbacks.append(callback)

    def become(self, state: SessionState) -> None:
        """Enter a state."""
        self.state = state
        for callback in self._callbacks:
            callback(state)

    async def transaction(self, operations: Sequence[Op]) -> list[Result]:
        self.transactions.append(list(operations))
        if self.failures:
            raise self.failures.pop(0)
        return [*([None] * (len(operations) - 1)), "/brokers/changes/change-0000000007"]

    def states(self) -> list[tuple[str, PartitionStateNode, int]]:
        """The states that were to be set: path, state and the version they are based on."""
        return [
            (op.path, PartitionStateNode.decode(op.data), op.version)
            for operations in self.transactions
            for op in operations
            if isinstance(op, Set)
        ]


class DataPlane:
    """Partitions on disk, and the handlers in front of them."""

    def __init__(self, directory: Path, **settings: object) -> None:
        """``settings``: of the broker, with underscores for dots."""
        self.directory = directory
        stated = {name.replace("_", "."): value for name, value in settings.items()}
        self.config = BrokerConfig({"log.dirs": [str(directory / "logs")], **stated})
        self.clock = ManualClock()
        self.disk = DiskControl()
        self.metadata = Metadata(self.config)
        self.metrics = Metrics()
        self.store = Store()
        self.dead_letters = cast("DeadLetters", None)
        """What stores records that are given up: set by tests that give some up."""
        self.control: AccessControl | None = None
        """What requests are authorized by, if they are."""

    async def start(self, before_partitions: Callable[[], None] | None = None) -> None:
        """Open what is on disk; before that, call ``before_partitions``."""
        self.logs = await asyncio.to_thread(
            LogManager.open,
            self.config.log_dirs,
            self._log_config,
            self.clock,
            ControlledFiles(self.disk),
            node_id=NODE,
            cluster_id=CLUSTER,
            make_fold=PartitionFold,
            topic_id_of=self._topic_id_of,
        )
        epoch = self.metadata.brokers[NODE].epoch
        self.fetchers = LazyFetchers(
            self.config, NODE, epoch, self.metadata, self.clock, self.metrics
        )
        self.replicas = ReplicaManager(
            self.config,
            self.logs,
            self.metadata,
            self.clock,
            self.metrics,
            cast("MetadataStore", self.store),
            self.fetchers,
            ReplicaSessions,
        )
        self.delays = DelayService(self.clock, self.dead_letters)
        self.replicas.events.subscribe(self.delays)
        self.queues = QueueService(self.clock, self.dead_letters)
        self.replicas.events.subscribe(self.queues)
        self.cleaner = LogCleaner(self.logs, self.config, self.clock)
        self.replicas.events.subscribe(self.cleaner)
        if before_partitions is not None:
            before_partitions()
        await self.replicas.start()
        self.broker: Any = SimpleNamespace(
            config=self.config,
            node_id=NODE,
            cluster_id=CLUSTER,
            clock=self.clock,
            metadata=self.metadata,
            logs=self.logs,
            replicas=self.replicas,
            delays=self.delays,
            queues=self.queues,
            cleaner=self.cleaner,
            quotas=ClientQuotas(),
            memory=MemoryBudget(0),
        )

    async def stop(self) -> None:
        """Close everything cleanly."""
        self.disk.release_syncs()
        self.delays.stop()
        self.queues.stop()
        await self.replicas.stop()
        await asyncio.to_thread(self.logs.close)
        self.metadata.forget_subscribers()

    async def restart(self) -> None:
        """Stop, and start again with what is on disk and in the metadata."""
        await self.stop()
        await self.start()

    def _log_config(self, name: str) -> LogConfig:
        topic = self.metadata.topics.get(name) or Topic(name, b"", ())
        return log_config(self.metadata.topic_config(topic), self.config)

    def _topic_id_of(self, name: str) -> bytes | None:
        topic = self.metadata.topics.get(name)
        return None if topic is None else topic.id

    async def create(self, name: str, partitions: int = 1, **config: object) -> Partition:
        """Create a topic; its partition 0. ``config``: with underscores for dots."""
        texts = {key.replace("_", "."): str(value) for key, value in config.items()}
        await self.metadata.put(self.metadata.new_topic(name, partitions, texts))
        return self.partition(name)

    def partition(self, topic: str, index: int = 0) -> Partition:
        """A partition that must be there."""
        partition = self.replicas.get_partition(topic, index)
        assert partition is not None
        return partition

    def begin(self, key: ApiKey, version: int, request: Struct, peer: Peer | None = None) -> Any:
        """Encode and decode a request, and return its handler's answer.

        The memory of the frame is used again then, as a connection does.
        """
        frame = b"".join(map(bytes, encode_request(key, version, 7, "test", request)))[4:]
        buffer = memoryview(bytearray(frame))
        header, position = decode_request_header(buffer)
        decoded = decode(API[key].request, header.api_version, buffer, position)
        peer = peer or Peer(1, "127.0.0.1", ListenerInfo.plaintext("127.0.0.1", 9092))
        context = RequestContext(key, version, header.client_id, peer, self.control)
        module = import_module(f"qbus.broker.kafka.handlers.{key.name.lower()}")
        answer = module.handle(self.broker, context, decoded)
        buffer[:] = bytes(len(buffer))
        return answer

    async def call(self, key: ApiKey, version: int, request: Struct) -> Any:
        """The response as its client decodes it."""
        return over_the_wire(key, version, await settled(self.begin(key, version, request)))


async def settled(outcome: Any) -> Any:
    """The final answer of a handler, which may be awaitable."""
    return await outcome if isinstance(outcome, Awaitable) else outcome


def over_the_wire(key: ApiKey, version: int, response: R) -> R:
    """Encode a response as a broker sends it, and decode it as a client does."""
    sent = bytearray()
    for part in encode_response(key, version, 7, response):
        if isinstance(part, bytes | bytearray | memoryview):
            sent += part
        else:
            sent += part.read()
            part.close()
    _, decoded = decode_response(key, version, memoryview(sent)[4:])
    answer: R = decoded
    return answer


def values(records: memoryview) -> list[bytes | None]:
    """The values in the batches of a fetch's answer."""
    return [record.value for _, batch in iter_batches(records) for record in iter_records(batch)]
