"""Two real brokers, a topic at one, its copy at the other, and the link between them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Self

from qbus.clients import EARLIEST, LATEST, Admin, Producer, TopicPartition
from qbus.clients.batches import read_batches
from qbus.clients.batches.produce import produce_topics
from qbus.clients.mirror.config import LinkConfig, Topics, Transfer
from qbus.clients.mirror.link import MirrorLink
from qbus.clients.mirror.provenance import Provenance
from qbus.clients.mirror.status import PartitionStatus, Trouble
from qbus.clients.net.cluster import Cluster
from qbus.errors import ApiError
from qbus.records import build_batch, set_base_offset
from qbus.wire import ApiKey
from qbus.wire.messages.produce import PartitionProduceData, TopicProduceData
from tests.support.server_process import ServerProcess
from tests.support.waiting import eventually as it_comes_that

Idcs = tuple[ServerProcess, ServerProcess]
PATIENCE = 40.0


class Scene:
    """Both datacenters, and a topic ``name`` whose copy is ``target_topic``."""

    def __init__(self, idcs: Idcs, name: str) -> None:
        source, target = (broker.bootstrap for broker in idcs)
        self.name, self.target_topic = name, f"a.{name}"
        self.config = LinkConfig(
            "a",
            "b",
            source,
            target,
            (name,),
            topics_at_target=Topics(discovery_interval_ms=200),
            transfer=Transfer(session_timeout_ms=6_000, drain_timeout_ms=2_000),
        )
        self.source, self.target = Admin(source), Admin(target)
        self.here, self.there = (Cluster(one, "test", 10.0) for one in (source, target))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for one in (self.source, self.target, self.here, self.there):
            await one.close()

    async def send(self, partition: int, count: int = 10, batches: int = 5) -> None:
        async with Producer(self.config.source_bootstrap, linger_ms=0, compression="lz4") as one:
            for number in range(batches):
                values = [b"%d-%d" % (number, i) for i in range(count)]
                await (await one.send_many(self.name, values, partition=partition))

    @asynccontextmanager
    async def link(self, here: Cluster | None = None) -> AsyncIterator[MirrorLink]:
        """A process of the link, which reads by ``here``, until the end of the block."""
        source, target = self.bootstraps
        here, there = here or Cluster(source, "test", 10.0), Cluster(target, "test", 10.0)
        link = MirrorLink(self.config, here, there)
        running = asyncio.create_task(link.run())
        try:
            yield link
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await here.close()
            await there.close()

    @property
    def bootstraps(self) -> tuple[str, str]:
        return self.config.source_bootstrap, self.config.target_bootstrap

    async def batches(self, cluster: Cluster, topic: str, partition: int) -> list[bytes]:
        """Every byte of a partition, but for the leader epochs, which are each cluster's own."""
        place = TopicPartition(topic, partition)
        admin = self.source if cluster is self.here else self.target
        start = (await admin.list_offsets({place: EARLIEST}))[place].offset
        end = (await admin.list_offsets({place: LATEST}))[place].offset
        found = read_batches(cluster, place, start, end)
        return [bytes(batch[:12]) + bytes(batch[16:]) async for _, batch in found]

    async def assert_equal(self, *partitions: int) -> None:
        for partition in partitions:
            original = await self.batches(self.here, self.name, partition)
            assert original
            assert original == await self.batches(self.there, self.target_topic, partition)

    async def topic_id(self) -> str:
        return str((await self.source.describe_topic(self.name)).topic_id)

    async def write_as_mirror(self, base: int, count: int, value: bytes = b"v") -> None:
        """Write to the copy what the source never had."""
        batch = build_batch([(None, value, (), 1_700_000_000_000)] * count)
        set_base_offset(batch, base, -1)
        await self.there.need([self.target_topic])
        data = TopicProduceData(
            name=self.target_topic,
            mirror_source="a",
            mirror_topic_id=await self.topic_id(),
            partition_data=[PartitionProduceData(index=0, records=batch, mirror_follows=base)],
        )
        leader = self.there.metadata.leader(self.target_topic, 0)
        (outcome,) = (await produce_topics(self.there, leader, [data])).values()
        assert not isinstance(outcome, ApiError)

    async def create_copy(self) -> None:
        provenance = Provenance("a", await self.topic_id(), ("a",))
        await self.target.create_topic(self.target_topic, partitions=1, config=provenance.config())


async def eventually(
    link: MirrorLink, holds: Callable[[tuple[PartitionStatus, ...]], object]
) -> tuple[PartitionStatus, ...]:
    """The partitions' status once ``holds`` says so; what it was last, when that never comes."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not holds(link.status().partitions):  # noqa: ASYNC110 - a status, no event
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"still {link.status()}") from None
    return link.status().partitions


def reached(*ends: int) -> Callable[[tuple[PartitionStatus, ...]], bool]:
    return lambda found: [one.target_end for one in found] == list(ends)


def has_trouble(trouble: Trouble) -> Callable[[tuple[PartitionStatus, ...]], bool]:
    return lambda found: [one.trouble for one in found] == [trouble]


class Held(Cluster):
    """A cluster whose fetches can be held up."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap, "test", 10.0)
        self._under_way = 0
        self._may_pass = asyncio.Event()
        self._may_pass.set()

    async def ask(self, node_id: int, api: ApiKey, message: Any, **options: Any) -> Any:
        if api is not ApiKey.FETCH:
            return await super().ask(node_id, api, message, **options)
        await self._may_pass.wait()
        self._under_way += 1
        try:
            return await super().ask(node_id, api, message, **options)
        finally:
            self._under_way -= 1

    async def hold(self) -> None:
        """Let no more through; none is under way then."""
        self._may_pass.clear()
        await it_comes_that(lambda: not self._under_way)

    def let_go(self) -> None:
        self._may_pass.set()


async def assert_nothing_of_a_new_topic_comes(
    scene: Scene, create_again: Callable[[], Awaitable[object]]
) -> None:
    """A source's topic is deleted and created again, too quickly for the link to see it gone."""
    scene.config = replace(scene.config, topics_at_target=Topics(discovery_interval_ms=3_600_000))
    await scene.source.create_topic(scene.name, partitions=1)
    await scene.send(0)
    here = Held(scene.config.source_bootstrap)
    async with scene.link(here) as link:
        await eventually(link, reached(50))
        before = await scene.batches(scene.there, scene.target_topic, 0)
        await here.hold()
        await scene.source.delete_topic(scene.name)
        await create_again()
        await scene.send(0, count=30)
        here.let_go()
        await eventually(link, has_trouble(Trouble.SOURCE_RECREATED))
        assert await scene.batches(scene.there, scene.target_topic, 0) == before
