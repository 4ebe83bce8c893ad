"""A world with one internal log, whose state counts."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qbus.broker.controller import NewTopic, TopicPlan
from qbus.broker.internal_logs import InternalLog, InternalTopic, LogParts, Outcome, Producer, Shard
from qbus.errors import ApiError, ErrorCode
from tests.support.data_plane import DataPlane
from tests.support.waiting import eventually

NAME = "__counts"


class Counter:
    """A number by name; what comes in a transaction counts once that is committed.

    ``history`` is what it was told, in order.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.numbers: dict[str, int] = {}
        self.pending: dict[Producer, dict[str, int]] = {}
        self.history: list[tuple[Any, ...]] = []
        self.next_tick_ms: int | None = None
        self.ticks = 0
        self.is_broken = False

    def replay(
        self,
        key: bytes,
        value: bytes | None,
        offset: int,
        timestamp: int,
        producer: Producer | None,
    ) -> None:
        if self.is_broken:
            raise ValueError("it cannot take in anything")
        name = key.decode()
        self.history.append((offset, name, value, producer))
        if producer is not None:
            assert value is not None
            self.pending.setdefault(producer, {})[name] = int(value)
        elif value is None:
            self.numbers.pop(name, None)
        else:
            self.numbers[name] = int(value)

    def marker(self, producer_id: int, epoch: int, *, committed: bool) -> None:
        self.history.append((producer_id, epoch, committed))
        for producer in [one for one in self.pending if one[0] == producer_id]:
            numbers = self.pending.pop(producer)
            if committed:
                self.numbers |= numbers

    def tick(self, now_ms: int) -> Outcome[None] | None:
        self.ticks += 1
        return Outcome(None, [(b"ticks", str(self.ticks).encode())])


def add(name: str, number: int = 1, producer: Producer | None = None) -> Any:
    """The operation that adds to a number and answers the sum."""

    def operation(counter: Counter, _: int) -> Outcome[int]:
        total = counter.numbers.get(name, 0) + number
        return Outcome(total, [(name.encode(), str(total).encode())], producer=producer)

    return operation


def read(name: str) -> Any:
    """The operation that stores nothing."""
    return lambda counter, _: Outcome(counter.numbers.get(name))


class Controller:
    """Makes topics in a data plane, or refuses to."""

    def __init__(self, plane: DataPlane) -> None:
        self.plane = plane
        self.made: list[NewTopic] = []
        self.refusal: ApiError | None = None

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicPlan | ApiError]:
        assert not validate_only
        answers: list[TopicPlan | ApiError] = []
        for topic in topics:
            self.made.append(topic)
            if self.refusal is not None:
                answers.append(self.refusal)
                continue
            config = {name: str(value) for name, value in topic.config.items()}
            made = self.plane.metadata.new_topic(topic.name, topic.partitions, config)
            await self.plane.metadata.put(made)
            answers.append(TopicPlan(made.id, {0: (1,)}, config, []))
        return answers


class World:
    """A data plane with one internal log."""

    def __init__(self, directory: Path, partitions: int = 1) -> None:
        self.plane = DataPlane(directory)
        self.controller = Controller(self.plane)
        self.topic = InternalTopic(NAME, partitions, 1, 1, 1 << 20)
        self.loaded: list[Shard[Counter]] = []
        self.unloaded: list[Shard[Counter]] = []

    async def start(self) -> None:
        """Open what is on disk, and have the log follow its partitions."""
        await self.plane.start(before_partitions=self._follow)

    def _follow(self) -> None:
        parts = LogParts(
            self.plane.clock, self.plane.metadata, self.controller, self.plane.replicas.tasks
        )
        self.log: InternalLog[Counter] = InternalLog(
            parts,
            lambda: self.topic,
            Counter,
            on_loaded=self.loaded.append,
            on_unloaded=self.unloaded.append,
        )
        self.plane.replicas.events.subscribe(self.log)

    async def stop(self) -> None:
        await self.log.stop()
        await self.plane.stop()

    async def restart(self) -> None:
        """Stop, and start with what is stored."""
        await self.stop()
        await self.start()

    async def create(self, key: str = "a") -> None:
        """Make the topic, and wait until it is loaded."""
        await self.log.coordinator(key)
        await self.ready()

    async def ready(self) -> None:
        """Wait until every shard is loaded."""
        await eventually(lambda: self.log.loading == 0 and any(self.log.shards()))

    def counter(self, key: str = "a") -> Counter:
        return self.log.machine(key)

    async def code(self, key: str, operation: Any) -> ErrorCode:
        """The code that an operation is refused with."""
        try:
            async with asyncio.timeout(5):
                await self.log.ask(key, operation)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE
