"""Jobs on real partitions, without sockets, with a clock that tests set."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hiredis

from qbus.broker.controller import NewTopic
from qbus.broker.controller.controller import ConfigChange
from qbus.broker.delay.delayed_partition import DelayedPartition
from qbus.broker.disque.admin import AdminCommands
from qbus.broker.disque.connection import Client, PendingReply
from qbus.broker.disque.dispatch import Dispatcher
from qbus.broker.disque.resp import split_words
from qbus.broker.disque.service import DisqueService
from qbus.broker.disque.world import World
from qbus.broker.metadata.image import Topic
from qbus.broker.partition.partition import Partition
from qbus.broker.share import group_settings
from qbus.config import Address, ShareGroupConfig
from qbus.errors import ApiError
from tests.support.data_plane import CLUSTER, DataPlane, Metadata
from tests.support.resp_client import ReplyError, shown
from tests.support.waiting import eventually

SETTINGS = {
    "share.auto.offset.reset": "earliest",
    "share.delivery.count.limit": "0",
    "share.record.lock.duration.ms": "300000",
    "qbus.retry.nack.backoff.ms": "100",
}


class FakeController:
    """Makes topics of one partition, led here."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.created: list[NewTopic] = []
        self.refusal: ApiError | None = None

    async def create_topics(self, topics: Sequence[NewTopic]) -> Sequence[Any]:
        self.created += topics
        for new in topics:
            if self.refusal is not None:
                return [self.refusal]
            config = {name: text for name, text in new.config.items() if text is not None}
            await self._metadata.put(self._metadata.new_topic(new.name, 1, config))
        return [None] * len(topics)

    async def alter_topic_configs(
        self, changes: Sequence[ConfigChange]
    ) -> Sequence[ApiError | None]:
        for change in changes:
            topic = self._metadata.topics[change.name]
            await self._change(topic, change.edited(topic.config))
        return [None] * len(changes)

    async def _change(self, topic: Topic, config: Mapping[str, str]) -> None:
        changed = Topic(topic.name, topic.id, topic.partitions, config)
        await self._metadata.put(changed)


class FakeGroups:
    """Lets the group of jobs be known."""

    async def ensure(self, group_id: str) -> None:
        pass


class ClientReply(asyncio.Future[bytes]):
    """A reply that a test can wait for. Cancelled, it is that of a client that goes away."""

    def __init__(self, reply: PendingReply) -> None:
        super().__init__()
        self._reply = reply
        reply.on_done(self._on_reply)

    def cancel(self, msg: object = None) -> bool:
        is_cancelled = super().cancel(msg)
        self._reply.cancel()
        return is_cancelled

    def _on_reply(self) -> None:
        if not self.done():
            self.set_result(self._reply.result())


class Jobs:
    """A node with its commands."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.plane = DataPlane(directory, **settings)
        self.clock = self.plane.clock
        self._clients = 0
        self.reclaimed: list[Partition] = []
        self.on_reclaim: Callable[[], Awaitable[object]] | None = None
        """Called when partitions that are paused are wanted."""

    async def _reclaim(self, partitions: Sequence[Partition]) -> None:
        self.reclaimed += partitions
        if self.on_reclaim is not None:
            await self.on_reclaim()

    async def start(self) -> None:
        """Open what is on disk."""
        plane = self.plane
        await plane.start()
        self.controller = FakeController(plane.metadata)
        world = World(
            plane.metadata,
            plane.replicas,
            plane.queues,
            plane.delays,
            self.controller,
            FakeGroups(),
            partial(group_settings, ShareGroupConfig(plane.config, SETTINGS)),
            reclaim=self._reclaim,
        )
        address = Address("127.0.0.1", 7711)
        self.service = DisqueService(plane.config, plane.clock, CLUSTER, address, world)
        plane.replicas.events.subscribe(self.service)
        self.admin = AdminCommands(self.service)
        self.dispatcher = Dispatcher(self.service, self.admin)
        self.client = self.new_client()

    async def stop(self) -> None:
        """Close everything."""
        self.service.close()
        await self.plane.stop()

    async def restart(self) -> None:
        """Stop, and start again with what is on disk."""
        await self.stop()
        await self.start()

    def new_client(self) -> Client:
        """A client that is not connected to anything."""
        self._clients += 1
        return Client(self._clients, "127.0.0.1", 5000, 0.0, lambda _: None)

    def begin(self, line: str, client: Client | None = None) -> "asyncio.Future[bytes]":
        """Begin a command; its reply's bytes."""
        reply = self.dispatcher.begin(client or self.client, split_words(line.encode()))
        if isinstance(reply, bytes):
            future = asyncio.get_running_loop().create_future()
            future.set_result(reply)
            return future
        if isinstance(reply, PendingReply):
            return ClientReply(reply)
        return asyncio.ensure_future(reply)

    async def ask(self, line: str, client: Client | None = None) -> Any:
        """The reply to a command, as a Python value; an error reply is returned."""
        return decoded(await asyncio.wait_for(self.begin(line, client), 20))

    async def add(self, queue: str = "q", body: str = "body", options: str = "") -> str:
        """Add a job; its id."""
        text = await self.ask(f"ADDJOB {queue} {body} 0 {options}")
        assert isinstance(text, str), text
        return text

    async def bodies(self, options: str = "COUNT 100", queue: str = "q") -> list[str]:
        """The bodies of the jobs that a client gets now."""
        jobs = await self.ask(f"GETJOB NOHANG {options} FROM {queue}")
        return [job[2] for job in jobs or ()]

    def partition(self, queue: str = "q") -> Partition:
        """The partition of a queue."""
        return self.plane.partition(queue)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and everybody look at the clock. What is due by then is delivered."""
        self.clock.advance(seconds)
        for delayed in self.plane.delays:
            delayed.wake()
            await eventually(partial(_has_delivered, delayed, self.clock.time_ms()))
        for queue in self.plane.queues:
            queue.look()
        await self.settled()

    async def settled(self) -> None:
        """Wait until all that was begun is stored."""
        for _ in range(3):
            await asyncio.sleep(0.005)
        for topic in self.plane.metadata.topics:
            await eventually(partial(_is_stable, self.plane.partition(topic)))


def _has_delivered(delayed: DelayedPartition, now_ms: int) -> bool:
    return not delayed._due(now_ms, 1)


def _is_stable(partition: Partition) -> bool:
    return partition.high_watermark == partition.log.log_end_offset


def decoded(data: bytes) -> Any:
    """A reply as a Python value."""
    reader = hiredis.Reader(replyError=ReplyError)
    reader.feed(data)
    return shown(reader.gets())
