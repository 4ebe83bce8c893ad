"""The handlers of share groups over partitions on disk, and queues that a test fills."""

from typing import Any, cast

from qbus.broker.kafka.queue_leaders import QueueLeaders
from qbus.broker.kafka.share_requests import GroupQueues
from qbus.broker.kafka.share_sessions import ShareSessions
from qbus.broker.net.peer import Peer
from qbus.broker.share import ShareCoordinator
from qbus.config import ListenerInfo, ShareGroupConfig
from tests.support.data_plane import DataPlane
from tests.support.fake_queues import FakeQueueService
from tests.support.logs import batch
from tests.unit.broker.group.shell import DirectStore


class SharePlane:
    """What handlers of share groups reach, in place of a broker."""

    def __init__(self, plane: DataPlane) -> None:
        self.plane = plane
        self.queues = FakeQueueService()
        self.configs: dict[str, dict[str, str]] = {}
        self.peer = Peer(1, "127.0.0.1", ListenerInfo.plaintext("127.0.0.1", 9092))
        self.store = DirectStore()
        metadata: Any = plane.metadata
        metadata.group_config = lambda group: ShareGroupConfig(
            plane.config, self.configs.get(group, {})
        )
        queues, replicas = cast("Any", self.queues), plane.replicas
        broker = plane.broker
        broker.queues = queues
        broker.group_queues = GroupQueues(replicas, metadata, queues)
        broker.share_sessions = ShareSessions(broker.group_queues, plane.config)
        broker.queue_leaders = QueueLeaders(plane.config, metadata, replicas, queues)
        broker.shares = ShareCoordinator(
            self.store, metadata, plane.config, plane.clock, self._is_consumer_group
        )

    @staticmethod
    async def _is_consumer_group(_: str) -> bool:
        return False

    @property
    def sessions(self) -> ShareSessions:
        """The share sessions."""
        found: ShareSessions = self.plane.broker.share_sessions
        return found

    def fill(self, topic: str, count: int) -> None:
        """Append records to partition 0 of a topic, which the queues know nothing of."""
        self.plane.partition(topic).append(batch(*[b"record"] * count), 1)

    def id_of(self, topic: str) -> bytes:
        """The id of a topic."""
        return self.plane.metadata.topics[topic].id
