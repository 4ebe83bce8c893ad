"""A small world for members of a group: virtual time, a lossy network, one coordinator."""

import asyncio
import random
import selectors
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from qbus.clients.consumer.assignment import Assignment
from qbus.clients.errors import ConnectionFailed, RequestTimedOut
from qbus.clients.group.assignors import assignors_of
from qbus.clients.group.options import Callbacks, GroupOptions
from qbus.clients.group.rebalance import Rebalance
from qbus.clients.group.topics import SubscribedTopics
from qbus.clients.net.metadata import ClusterMetadata
from qbus.clients.net.trouble import TroubleLog
from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.clients.group.coordinator import Coordinator

SESSION = 3.0
REBALANCE = 4.0
MAX_POLL = 5.0


class _Selector(selectors.SelectSelector):
    """Waits for nothing: time passes instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "everything waits for ever"
            self.now += timeout
        return found


def run(main: Coroutine[Any, Any, Any]) -> None:
    """Run to the end in virtual time."""
    selector = _Selector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main)


class Network:
    """What members need of a cluster; questions and answers get lost, and take their time."""

    request_timeout = 2.0
    troubles = TroubleLog("test")

    def __init__(self, world: "World") -> None:
        self.metadata = ClusterMetadata()
        self._world = world

    async def ask_coordinator(
        self,
        group: str,
        api: object,
        request: Any,
        *,
        connection_group: object = None,
        timeout: float = 0,
        by_id: bool = False,
    ) -> Any:
        await self._pass()
        answer = asyncio.ensure_future(self._world.coordinator.answer(request))
        done, _ = await asyncio.wait({answer}, timeout=timeout or self.request_timeout)
        if not done:
            raise RequestTimedOut("no answer")
        await self._pass()
        return answer.result()

    async def _pass(self) -> None:
        await asyncio.sleep(self._world.random.uniform(0, 0.05))
        if self._world.random.random() < self._world.loss:
            raise ConnectionFailed("cut")

    def forget_coordinator(self, group: str, kind: object = None) -> None:
        """There is only one."""

    async def refresh(self, names: Iterable[str] | None) -> None:
        await self._pass()
        told = self._world.topics if names is None else names
        self.metadata.update(
            MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)],
                topics=[self._topic(name) for name in told],
            ),
            is_whole=names is None,
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self._world.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return MetadataResponseTopic(error_code=code, name=name)
        return MetadataResponseTopic(
            name=name,
            partitions=[
                MetadataResponsePartition(partition_index=index, leader_id=1)
                for index in range(self._world.topics[name])
            ],
        )


def as_cluster(network: Network) -> Any:
    """All that a member asks of a cluster."""
    return network


class Reader:
    """A consumer that reads one record a poll of each partition, and commits now and then."""

    def __init__(
        self, world: "World", topics: Any, assignors: Sequence[str], instance: str | None = None
    ) -> None:
        self.world = world
        self.owned: set[TopicPartition] = set()
        self.told: list[tuple[str, list[TopicPartition]]] = []
        self.is_slow = False
        self.failure: ApiError | None = None
        self.assignment = Assignment()
        self.network = as_cluster(Network(world))
        options = GroupOptions(
            "g",
            instance,
            session_timeout=SESSION,
            rebalance_timeout=REBALANCE,
            heartbeat_interval=0.5,
            max_poll_interval=MAX_POLL,
            assignors=assignors_of(assignors),
            callbacks=Callbacks(self._assigned, self._revoked, self._lost),
        )
        self.rebalance = Rebalance(
            self.network, options, self.assignment, asyncio.Event(), auto_commit=True
        )
        self.subscribe(topics)
        self.task = asyncio.create_task(self.live())

    def subscribe(self, topics: Any) -> None:
        """Want these from now on."""
        self.rebalance.subscribe(SubscribedTopics(self.network, topics))

    async def live(self) -> None:
        looked_at = 0.0
        loop = asyncio.get_running_loop()
        while self.failure is None:
            try:
                await self.rebalance.poll()
                if loop.time() - looked_at > 2:
                    looked_at = loop.time()
                    await self.rebalance.check_topics()
            except ApiError as error:
                if not error.retriable:
                    self.failure = error
            self._read()
            if self.world.random.random() < 0.3:
                self.rebalance.commits.submit(self.assignment.to_commit())
            pause = 2 * MAX_POLL if self.is_slow else self.world.random.uniform(0, 0.3)
            self.is_slow = False
            await asyncio.sleep(pause)

    def _read(self) -> None:
        for partition, state in self.assignment.states.items():
            if state.is_stopped:
                continue
            if state.position is None:
                state.position = self.world.coordinator.committed.get(partition, 0)
            else:
                state.position += 1

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.rebalance.close(may_commit=True)

    async def die(self) -> None:
        """Stop at once, without a word."""
        self.owned.clear()
        for task in (self.task, self.rebalance._task, self.rebalance._heartbeats._task):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self.rebalance.commits.close()

    # What the member is told.

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("assigned", partitions))
        for partition in partitions:
            self.world.check_free(partition, self)
        self.owned |= set(partitions)

    async def _revoked(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("revoked", partitions))
        self.world.check_committed(partitions, self)
        await asyncio.sleep(self.world.random.uniform(0, 0.1))
        self._gone(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("lost", partitions))
        self._gone(partitions)

    def _gone(self, partitions: list[TopicPartition]) -> None:
        if not self.owned.issuperset(partitions):
            self.world.wrong.append(f"{partitions} taken, of {self.owned}")
        if not set(self.assignment).issuperset(partitions):
            self.world.wrong.append(f"{partitions} taken before the user was told")
        self.owned -= set(partitions)


class World:
    """Everything there is, from one seed."""

    def __init__(self, seed: int, topics: dict[str, int], loss: float = 0.0) -> None:
        self.random = random.Random(seed)
        random.seed(seed)  # for what our own code draws
        self.topics = topics
        self.loss = loss
        self.is_lossy = loss > 0
        self.coordinator = Coordinator()
        self.readers: list[Reader] = []
        self.wrong: list[str] = []

    def reader(
        self,
        topics: Any = ("t",),
        assignors: Sequence[str] = ("range",),
        instance: str | None = None,
    ) -> Reader:
        made = Reader(self, topics, assignors, instance)
        self.readers.append(made)
        return made

    def check_free(self, partition: TopicPartition, taker: Reader) -> None:
        """Nobody else has it, but for those whom the group has given up."""
        for other in self.readers:
            if other is not taker and partition in other.owned:
                membership = other.rebalance.state.membership
                if membership.member_id in self.coordinator.members:
                    self.wrong.append(f"{partition} is still read by {membership}")

    def check_committed(self, partitions: Iterable[TopicPartition], giver: Reader) -> None:
        """All that was read of them is, unless the network is to blame."""
        for partition in partitions:
            position = giver.assignment.position(partition) or 0
            committed = self.coordinator.committed.get(partition, 0)
            if not self.is_lossy and committed < position:
                self.wrong.append(f"{partition} was read to {position}, committed to {committed}")

    def everything(self) -> list[TopicPartition]:
        return sorted(
            TopicPartition(topic, index)
            for topic, count in self.topics.items()
            for index in range(count)
        )

    def owned(self) -> list[TopicPartition]:
        return sorted(one for reader in self.readers for one in reader.owned)

    async def until_stable(self, within: float = 60.0) -> None:
        """Return when every partition has an owner, and keeps it for a while."""
        clock = asyncio.get_running_loop().time
        deadline, since = clock() + within, clock()
        while clock() - since < 3:
            await asyncio.sleep(0.1)
            is_whole = self.owned() == self.everything()
            if not is_whole or any(r.rebalance.state.rejoin_reason for r in self.readers):
                since = clock()
            assert clock() < deadline, [vars(r.rebalance.state) for r in self.readers]
