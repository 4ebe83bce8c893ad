"""Topics that a data plane leads for others, and a follower of them without a broker around it."""

from typing import Any

from qbus.broker.metadata.image import BrokerInfo, PartitionInfo, Topic
from qbus.broker.partition.partition import Partition
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

from .data_plane import NODE, DataPlane

OTHER, THIRD = 2, 3
VERSION = 17
EPOCH = 7  # of the other brokers' registrations
_MIB = 1 << 20


def state(
    isr: tuple[int, ...] = (NODE, OTHER, THIRD),
    *,
    leader: int = NODE,
    leader_epoch: int = 0,
    replicas: tuple[int, ...] = (NODE, OTHER, THIRD),
    version: int = 0,
    elr: tuple[int, ...] = (),
) -> PartitionInfo:
    """A partition's state in the store."""
    return PartitionInfo(leader, leader_epoch, replicas, isr, version, elr)


async def put(
    plane: DataPlane, *partitions: PartitionInfo, topic: str = "orders", **config: object
) -> Topic:
    """Create the topic with these states, or change them; the other brokers live."""
    for node in (OTHER, THIRD):
        plane.metadata.brokers.setdefault(
            node, BrokerInfo(node, "127.0.0.1", 9000 + node, f"rack-{node}", EPOCH)
        )
    known = plane.metadata.topics.get(topic)
    texts = {key.replace("_", "."): str(value) for key, value in config.items()}
    topic_id = known.id if known else plane.metadata.new_topic(topic).id
    settings = texts or (known.config if known else {})
    return await plane.metadata.put(Topic(topic, topic_id, partitions, settings))


async def lead(plane: DataPlane) -> Partition:
    """Lead partition 0 of a topic that is followed by both others, from memory."""
    await put(plane, state(), qbus_durability="memory")
    return plane.partition("orders")


class Follower:
    """Asks for what it wants, as another broker's fetcher does."""

    def __init__(self, plane: DataPlane, node_id: int = OTHER, broker_epoch: int = EPOCH) -> None:
        self.session_id = 0
        self.session_epoch = 0
        self._plane = plane
        self._node_id = node_id
        self._broker_epoch = broker_epoch

    def request(
        self,
        *wanted: FetchPartition,
        topic: str = "orders",
        wait_ms: int = 0,
        max_bytes: int = 50 * _MIB,
        forgotten: tuple[int, ...] = (),
    ) -> FetchRequest:
        """Go on in the session, or begin it."""
        topic_id = self._plane.metadata.topics[topic].id
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchTopic(topic_id=topic_id, partitions=list(wanted))] if wanted else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=list(forgotten))]
            if forgotten
            else [],
        )

    async def fetch(self, *wanted: FetchPartition, **options: Any) -> dict[int, Any]:
        """Fetch, and return the data of each partition by index."""
        response = await self.ask(*wanted, **options)
        assert response.error_code == 0
        return {data.partition_index: data for t in response.responses for data in t.partitions}

    async def ask(self, *wanted: FetchPartition, **options: Any) -> Any:
        """The whole answer."""
        request = self.request(*wanted, **options)
        response = await self._plane.call(ApiKey.FETCH, VERSION, request)
        self.session_id = response.session_id
        self.session_epoch += 1
        return response


def at(offset: int, index: int = 0, *, leader_epoch: int = 0, log_start: int = 0) -> FetchPartition:
    """Ask for ``offset``, and so have everything before."""
    return FetchPartition(
        partition=index,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        log_start_offset=log_start,
        partition_max_bytes=_MIB,
    )
