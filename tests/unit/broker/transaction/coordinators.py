"""A transaction coordinator on a real partition, and brokers that a test answers for."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbus.broker.internal_logs import LogParts, Producer
from qbus.broker.metadata.image import BrokerInfo, PartitionInfo
from qbus.broker.transaction import (
    Marker,
    Place,
    Question,
    State,
    Told,
    TransactionCoordinator,
)
from qbus.broker.transaction.machine import TransactionMachine
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.metadata import StoreUnavailable
from qbus.names import TRANSACTIONS_TOPIC
from tests.support.data_plane import DataPlane
from tests.support.waiting import eventually
from tests.unit.broker.internal_logs.counter import Controller

TX = "payments"
NEAR, FAR = 1, 2


class Brokers:
    """The other brokers: they note what they are told, and answer as a test wants.

    ``refusals`` are answers by partition, used up one by one; ``unreachable`` brokers cannot be
    asked; while ``held`` is not set, nothing is answered.
    """

    def __init__(self) -> None:
        self.markers: list[tuple[int, Marker]] = []
        self.requests = 0
        self.groups: list[tuple[str, int, int, bool]] = []
        self.refusals: dict[Place | str, list[ErrorCode]] = {}
        self.unreachable: set[int] = set()
        self.held = asyncio.Event()
        self.held.set()
        self.asked: list[tuple[Question, bool]] = []
        self.answers: Mapping[Place | str, ErrorCode] | QbusError = {}

    async def write(self, broker: int, markers: Sequence[Marker]) -> Told:
        self.requests += 1
        await self.held.wait()
        if broker in self.unreachable:
            raise QbusError(f"broker {broker} is not reached")
        self.markers += [(broker, marker) for marker in markers]
        return {
            (marker.producer_id, place): self._answer(place)
            for marker in markers
            for place in marker.partitions
        }

    def write_own(self, broker: int, markers: Sequence[Marker], told: Any) -> bool:
        return False

    async def end_group(self, group: str, producer_id: int, epoch: int, *, committed: bool) -> None:
        await self.held.wait()
        code = self._answer(group)
        if code:
            raise ApiError(code)
        self.groups.append((group, producer_id, epoch, committed))

    async def ask_coordinator(
        self, question: Question, *, add: bool
    ) -> Mapping[Place | str, ErrorCode]:
        self.asked.append((question, add))
        if isinstance(self.answers, QbusError):
            raise self.answers
        return self.answers

    def _answer(self, one: Place | str) -> ErrorCode:
        refusals = self.refusals.get(one)
        return refusals.pop(0) if refusals else ErrorCode.NONE

    def told(self) -> list[tuple[int, Place, int, bool]]:
        """Who was told what: broker, partition, epoch, and whether it is committed."""
        return [
            (broker, place, marker.epoch, marker.committed)
            for broker, marker in self.markers
            for place in marker.partitions
        ]


class Ids:
    """Producer ids from 100 on, unless the store is gone."""

    def __init__(self) -> None:
        self.next = 100
        self.is_gone = False

    async def allocate(self) -> int:
        if self.is_gone:
            raise StoreUnavailable("the store is gone")
        self.next += 1
        return self.next - 1


class World:
    """One broker that coordinates, and the partitions ``t-0`` to ``t-3`` on two brokers."""

    def __init__(self, directory: Path) -> None:
        self.plane = DataPlane(directory, transaction_state_log_num_partitions=1)
        self.brokers = Brokers()
        self.ids = Ids()

    async def start(self) -> None:
        await self.plane.start(before_partitions=self._follow)
        metadata = self.plane.metadata
        metadata.brokers[FAR] = BrokerInfo(FAR, "127.0.0.1", 9093)
        if "t" not in metadata.topics:
            topic = metadata.new_topic("t", 4, leader=FAR)
            near = PartitionInfo(NEAR, 0, (NEAR,), (NEAR,))
            partitions = (near, near, *topic.partitions[2:])
            await metadata.put(replace(topic, partitions=partitions))

    def _follow(self) -> None:
        plane = self.plane
        parts = LogParts(plane.clock, plane.metadata, Controller(plane), plane.replicas.tasks)
        self.transactions = TransactionCoordinator(plane.config, parts, self.ids, self.brokers)
        plane.replicas.events.subscribe(self.transactions.log)

    async def stop(self) -> None:
        await self.transactions.stop()
        await self.plane.stop()

    async def restart(self) -> None:
        """Another life of the broker, or another broker that has the same log."""
        await self.stop()
        await self.start()
        await eventually(lambda: bool(list(self.transactions.log.shards())))

    async def producer(self, name: str = TX, timeout_ms: int = 60_000) -> Producer:
        """A producer that has begun."""
        await self.transactions.coordinator(name)
        await eventually(lambda: bool(list(self.transactions.log.shards())))
        return await self.transactions.initialize(name, timeout_ms)

    @property
    def machine(self) -> TransactionMachine:
        return self.transactions.log.machine(TX)

    def state(self, name: str = TX) -> State:
        return self.machine.transactions[name].state

    async def over(self, name: str = TX) -> None:
        """Wait until the transaction has ended everywhere."""
        done = {State.COMPLETE_COMMIT, State.COMPLETE_ABORT}
        await eventually(lambda: self.state(name) in done)

    async def lead_elsewhere(self) -> None:
        """Another broker comes to lead the log of transactions."""
        topic = self.plane.metadata.topics[TRANSACTIONS_TOPIC]
        elsewhere = PartitionInfo(FAR, 1, (NEAR, FAR), (FAR,))
        await self.plane.metadata.put(replace(topic, partitions=(elsewhere,)))

    async def move(self, place: Place, leader: int) -> None:
        """Another broker comes to lead a partition of ``t``; -1: nobody does."""
        topic = self.plane.metadata.topics[place[0]]
        partitions = list(topic.partitions)
        before = partitions[place[1]]
        partitions[place[1]] = replace(before, leader=leader, leader_epoch=before.leader_epoch + 1)
        self.plane.metadata.topics[place[0]] = replace(topic, partitions=tuple(partitions))
