"""The world of members of the consumer protocol, whose coordinator is the broker's own machine."""

import asyncio
import random
from collections import Counter, defaultdict
from typing import Any

from qbus.broker.consumer_group import ConsumerGroup
from qbus.broker.consumer_group.group import Settings
from qbus.broker.consumer_group.patterns import TopicPattern
from qbus.broker.group.requests import ConsumerHeartbeat, ConsumerHeartbeatResult, Respond
from qbus.broker.regular_expression import RegularExpression
from qbus.clients.group.options import Callbacks, GroupOptions
from qbus.clients.group.reconciliation import Reconciliation
from qbus.clients.types import OffsetAndMetadata, TopicPartition
from qbus.errors import ApiError
from qbus.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from qbus.wire.messages.metadata import MetadataResponseTopic
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.unit.clients.group import world
from tests.unit.clients.group.world import MAX_POLL, REBALANCE, as_cluster


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\1")


class Topics:
    """The topics of the world, as the group sees them."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes

    def find(self, name: str) -> tuple[bytes, int] | None:
        return (topic_id(name), self.sizes[name]) if name in self.sizes else None

    def name(self, wanted: bytes) -> str | None:
        return next((name for name in self.sizes if topic_id(name) == wanted), None)

    def pattern(self, text: str) -> TopicPattern | None:
        names = frozenset(self.sizes)
        matches = RegularExpression(text).matches
        return TopicPattern(text, frozenset(filter(matches, names)), names)


class Coordinator:
    """One group. ``wrong`` is what members did that they may not do."""

    def __init__(self, topics: dict[str, int], chance: random.Random) -> None:
        settings = Settings(session_timeout_ms=3_000, heartbeat_interval_ms=300)
        self.group = ConsumerGroup("g", Topics(topics), lambda: settings)
        self.committed: dict[TopicPartition, int] = {}
        self.wrong: list[str] = []
        self.refused: Counter[str] = Counter()
        self.known = dict(topics)
        self.random = chance
        self.commits_of: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def members(self) -> set[str]:
        return {one.member_id for one in self.group.members if not one.has_left}

    async def answer(self, request: Any) -> Any:
        now = asyncio.get_running_loop().time()
        self.pass_time(now)
        if isinstance(request, OffsetCommitRequest):
            async with self.commits_of[request.member_id]:  # in order, as of one connection
                if self.random.random() < 0.1:
                    await asyncio.sleep(1.0)  # the store is slow
                return self.commit(request, asyncio.get_running_loop().time())
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        return self.heartbeat(request, now)

    def pass_time(self, now: float) -> None:
        topics = self.group._catalog.sizes  # type: ignore[attr-defined]
        if topics != self.known:
            self.known = dict(topics)
            self.group.topics_changed(topics.keys(), now)
        self.group.tick(now)

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, now: float) -> Any:
        names, owned = request.subscribed_topic_names, request.topic_partitions
        beat = ConsumerHeartbeat(
            request.member_id,
            request.member_epoch,
            request.instance_id,
            request.rack_id,
            request.rebalance_timeout_ms,
            None if names is None else tuple(names),
            None,
            request.server_assignor,
            None
            if owned is None
            else frozenset((part.topic_id, index) for part in owned for index in part.partitions),
        )
        effects = self.group.handle(beat, now)
        (result,) = [effect.result for effect in effects if isinstance(effect, Respond)]
        assert isinstance(result, ConsumerHeartbeatResult)
        self.refused[result.error.name] += 1
        parts: dict[bytes, TopicPartitions] = {}
        for topic, index in sorted(result.assignment or ()):
            parts.setdefault(topic, TopicPartitions(topic_id=topic)).partitions.append(index)
        return ConsumerGroupHeartbeatResponse(
            error_code=result.error,
            error_message=result.message,
            member_id=result.member_id,
            member_epoch=result.epoch,
            heartbeat_interval_ms=result.heartbeat_interval_ms,
            assignment=None
            if result.assignment is None
            else Assignment(topic_partitions=list(parts.values())),
        )

    def commit(self, request: OffsetCommitRequest, now: float) -> OffsetCommitResponse:
        epoch = request.generation_id_or_member_epoch
        instance = request.group_instance_id
        error = self.group.admit_commit(request.member_id, instance, epoch, now)
        self.refused[error.name] += 1
        answers = []
        for topic in request.topics:
            for part in topic.partitions:
                key = TopicPartition(topic.name, part.partition_index)
                if not error:
                    self.take(key, part.committed_offset, request.member_id)
            answers.append(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=part.partition_index, error_code=error
                        )
                        for part in topic.partitions
                    ],
                )
            )
        return OffsetCommitResponse(topics=answers)

    def take(self, key: TopicPartition, offset: int, member_id: str) -> None:
        """A commit counts: it is of whoever has the partition, and does not go back."""
        place = topic_id(key.topic), key.partition
        holder = next((one.member_id for one in self.group.members if place in one.held), None)
        if holder != member_id:
            self.wrong.append(f"{member_id} committed {key}, which {holder} has")
        if offset < self.committed.get(key, 0):
            self.wrong.append(f"{key} goes back from {self.committed[key]} to {offset}")
        self.committed[key] = offset


class Network(world.Network):
    """Topics have ids here."""

    def _topic(self, name: str) -> MetadataResponseTopic:
        found = super()._topic(name)
        found.topic_id = topic_id(name)
        return found


class Reader(world.Reader):
    """A consumer of the other protocol."""

    def __init__(self, world: "World", topics: Any, instance: str | None = None) -> None:
        self.world = world
        self.owned = set()
        self.told = []
        self.is_slow = False
        self.failure: ApiError | None = None
        self.assignment = world.new_assignment()
        self.network = as_cluster(Network(world))
        options = GroupOptions(
            "g",
            instance,
            session_timeout=3.0,
            rebalance_timeout=REBALANCE,
            heartbeat_interval=0.5,
            max_poll_interval=MAX_POLL,
            callbacks=Callbacks(self._assigned, self._revoked, self._lost),
            protocol="consumer",
        )
        self.rebalance: Any = Reconciliation(
            self.network, options, self.assignment, asyncio.Event(), auto_commit=True
        )
        state = self.rebalance.state  # whose id follows from the seed as all else does
        member_id = f"member-{world.random.getrandbits(64):016x}"
        state.membership = state.membership._replace(member_id=member_id)
        self.subscribe(topics)
        self.task = asyncio.create_task(self.live())

    async def _revoked(self, partitions: list[TopicPartition]) -> None:
        await super()._revoked(partitions)
        if self.world.random.random() < 0.3:  # some commit without waiting for the answer
            self.rebalance.commits.submit(
                {
                    one: OffsetAndMetadata(position)
                    for one in partitions
                    if (position := self.assignment.position(one)) is not None
                }
            )

    async def die(self) -> None:
        self.owned.clear()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.rebalance._stop()
        await self.rebalance.commits.close()


class World(world.World):
    """Everything there is, from one seed."""

    def __init__(self, seed: int, topics: dict[str, int], loss: float = 0.0) -> None:
        super().__init__(seed, topics, loss)
        self.coordinator: Any = Coordinator(topics, self.random)

    def new_assignment(self) -> Any:
        from qbus.clients.consumer.assignment import Assignment as Assigned

        return Assigned()

    def reader(self, topics: Any = ("t",), _: Any = None, instance: str | None = None) -> Reader:
        made = Reader(self, topics, instance)
        self.readers.append(made)
        return made

    async def until_stable(self, within: float = 60.0) -> None:
        clock = asyncio.get_running_loop().time
        deadline, since = clock() + within, clock()
        while clock() - since < 3:
            await asyncio.sleep(0.1)
            if self.owned() != self.everything():
                since = clock()
            assert clock() < deadline, (self.owned(), self.everything())
