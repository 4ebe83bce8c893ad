"""A follower on a disk that tests control, and fake leaders."""

import asyncio
from pathlib import Path

from qbus.broker.log import Log, LogConfig, LogManager
from qbus.broker.metadata.image import BrokerInfo, PartitionInfo, Topic
from qbus.broker.metrics import Metrics
from qbus.broker.partition.events import PartitionEvents
from qbus.broker.partition.flusher import FlushThreads
from qbus.broker.partition.partition import Partition, StoreSession
from qbus.broker.replicator.fetchers import ReplicaFetchers
from qbus.clock import SystemClock
from qbus.config import BrokerConfig, TopicConfig
from tests.support.fake_leader import FakeLeader
from tests.support.logs import ControlledFiles, DiskControl
from tests.support.waiting import eventually

US, LEADER, OTHER = 1, 2, 3
BROKER_EPOCH = 41
ORDERS = bytes(16)


class Known:
    """The part of the cluster's metadata that fetching reads."""

    def __init__(self, config: BrokerConfig) -> None:
        self.brokers: dict[int, BrokerInfo] = {}
        replicas = (US, LEADER, OTHER)
        info = PartitionInfo(LEADER, 0, replicas, replicas)
        self.topics = {"orders": Topic("orders", ORDERS, (info,) * 4)}
        self._config = config
        self._settings: dict[str, str] = {}

    def set(self, **settings: str) -> None:
        """Configure the topic."""
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}

    def topic_config(self, topic: Topic) -> TopicConfig:
        return TopicConfig(self._config, self._settings)


class Scene:
    """Partitions of ``orders`` that this broker follows; closed by :meth:`close`."""

    def __init__(self, directory: Path, **config: object) -> None:
        self.disk = DiskControl()
        self.logs = LogManager.open(
            [str(directory)],
            lambda _: LogConfig(),
            SystemClock(),
            ControlledFiles(self.disk),
            node_id=US,
            cluster_id="test",
        )
        settings: dict[str, object] = {
            "replica.fetch.backoff.ms": "50",
            "replica.fetch.wait.max.ms": "20000",
            "replica.socket.timeout.ms": "10000",
        }
        self.config = BrokerConfig(
            settings | {name.replace("_", "."): value for name, value in config.items()}
        )
        self.known = Known(self.config)
        self.metrics = Metrics()
        self.fetchers = ReplicaFetchers(
            US, BROKER_EPOCH, self.known, SystemClock(), self.config, self.metrics
        )
        self._flusher = FlushThreads(asyncio.get_running_loop())
        self._session = StoreSession()
        self._fakes: list[FakeLeader] = []

    async def close(self) -> None:
        self.disk.release_syncs()
        await self.fetchers.stop()
        await self._flusher.stop()
        for fake in self._fakes:
            await fake.__aexit__()
        self.logs.close()

    async def leader(self, broker_id: int = LEADER) -> FakeLeader:
        """Start a fake leader and register it."""
        fake = await FakeLeader().__aenter__()
        self._fakes.append(fake)
        self.register(fake, broker_id)
        return fake

    def register(self, fake: FakeLeader, broker_id: int = LEADER) -> None:
        self.known.brokers[broker_id] = BrokerInfo(broker_id, "127.0.0.1", fake.port)

    def partition(self, index: int = 0, *, durable: bool = False) -> Partition:
        """Create a replica with an empty log."""
        log = self.logs.create("orders", index, ORDERS, LogConfig(), is_new=True)
        made = Partition(
            "orders", index, log, self._flusher, self.logs, self._session, PartitionEvents()
        )
        made.configure(durable=durable, min_insync_replicas=1)
        return made

    def follow(self, partition: Partition, leader: int = LEADER, epoch: int = 0) -> None:
        """Make a replica follow a leader."""
        partition.follow(leader, epoch)
        self.fetchers.add(partition, leader, epoch)

    async def copied(self, partition: Partition, leader: FakeLeader) -> None:
        """Wait until a follower has its leader's log and high watermark."""
        led = leader.partitions[ORDERS, partition.index]
        await eventually(
            lambda: partition.high_watermark == led.high_watermark == log_end(partition)
        )
        assert content(partition.log) == b"".join(led.batches)

    def gauge(self, name: str) -> float:
        return (self.metrics.gauges | self.metrics.counters)[name][1]()


def log_end(partition: Partition) -> int:
    return partition.log.log_end_offset


def content(log: Log) -> bytes:
    """Every byte of every batch."""
    found, offset = b"", log.log_start_offset
    while (part := log.read(offset, 1 << 20, wait=True)) is not None:
        with part:
            found += part.read()
            offset = part.next_offset
    return found


def asked(leader: FakeLeader, index: int = 0) -> list[int]:
    """The offsets at which a partition was fetched, in order."""
    return [
        partition.fetch_offset
        for fetch in leader.fetches
        for topic in fetch.topics
        for partition in topic.partitions
        if partition.partition == index
    ]


def forgotten(leader: FakeLeader) -> list[int]:
    """The partitions that were removed from the session, in order."""
    return [
        index
        for fetch in leader.fetches
        for topic in fetch.forgotten_topics_data
        for index in topic.partitions
    ]
