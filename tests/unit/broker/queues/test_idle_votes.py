"""Votes for idle queues: a partition is paused as long as the store may have its vote."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.metadata.image import Topic
from qbus.broker.partition.partition import ACKS_ALL, Partition
from qbus.broker.queues import AckRange, AckType, GroupSettings
from qbus.broker.queues.idle import GRACE_S
from qbus.broker.queues.idle_votes import IdleVotes
from qbus.broker.queues.taking import Offer
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Create, Delete, EmbeddedStore, StoreUnavailable
from qbus.metadata.znodes import BrokerEpochNode, IdleQueuesNode, IdleVote, TopicNode
from qbus.records import build_batch
from qbus.records.encode import encode_records
from tests.support.data_plane import NODE, DataPlane
from tests.support.logs import transactional
from tests.support.waiting import eventually

GROUP = "disque"
SETTINGS = GroupSettings(auto_offset_reset="earliest")
IDLE_S = 300.0


class World:
    """A broker's partitions, and the store with its votes."""

    def __init__(self, directory: Path) -> None:
        self.plane = DataPlane(directory)
        self.clock = self.plane.clock
        self.store = EmbeddedStore(directory / "metadata.db")
        self.epoch = 0
        self.used: set[Partition] = set()

    async def start(self) -> None:
        await self.store.start()
        await self.store.transaction([Create(BrokerEpochNode.path(NODE))])
        self.plane.metadata.catch_up = self._catch_up  # type: ignore[attr-defined]
        await self._start()

    async def _start(self) -> None:
        def subscribe() -> None:
            metadata: Any = self.plane.metadata
            broker = NODE, self.epoch
            self.votes = IdleVotes(self.store, metadata, self.clock, self.plane.queues, broker)
            self.votes.users.append(self.used.__contains__)
            self.plane.replicas.events.subscribe(self.votes)

        await self.plane.start(subscribe)

    async def stop(self) -> None:
        await self.votes.close()
        await self.plane.stop()
        await self.store.close()

    async def restart(self) -> None:
        """Restart the broker's partitions; its node in the store goes with its session."""
        await self.votes.close()
        await self.plane.stop()
        if await self.node() is not None:
            await self.store.transaction([Delete(IdleQueuesNode.path(NODE))])
        await self._start()

    async def _catch_up(self) -> None:
        for topic in list(self.plane.metadata.topics.values()):
            if await self.store.get(TopicNode.identity_path(topic.name, topic.id)) is None:
                await self.plane.metadata.remove(topic.name)

    async def create(self, name: str = "q", partitions: int = 1, **config: object) -> Partition:
        """A queue with an idle time-out, as ADDJOB creates one."""
        texts = {"qbus.queue.idle.ms": str(int(1000 * IDLE_S)), "qbus.delay.enable": "true"}
        texts |= {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = replace(self.plane.metadata.new_topic(name, partitions, texts), has_identity=True)
        await self.store.transaction(
            [Create(TopicNode.path(name)), Create(TopicNode.identity_path(name, topic.id))]
        )
        await self.plane.metadata.put(topic)
        return self.plane.partition(name)

    async def delete_in_store(self, name: str = "q") -> None:
        """Delete a topic; the broker has not heard of it yet."""
        topic = self.topic(name)
        await self.store.transaction([Delete(TopicNode.identity_path(name, topic.id))])

    def topic(self, name: str = "q") -> Topic:
        return self.plane.metadata.topics[name]

    async def node(self) -> IdleQueuesNode | None:
        found = await self.store.get(IdleQueuesNode.path(NODE))
        return None if found is None else IdleQueuesNode.decode(found.data)

    async def voted(self) -> tuple[IdleVote, ...]:
        """The votes that are stored."""
        node = await self.node()
        return () if node is None else node.votes

    def add(self, partition: Partition, **headers: str) -> int:
        """Append a job. Raises ApiError."""
        items = [[(name.replace("_", "-"), text.encode()) for name, text in headers.items()]]
        batch = encode_records([b"job"], headers=items, base_timestamp=self.clock.time_ms())
        if headers:
            intake = self.plane.delays.intake(partition, memoryview(batch), ACKS_ALL)
            assert intake is not None
            return intake.append()[0].first_offset
        return partition.append(memoryview(batch), ACKS_ALL).first_offset

    async def finish(self, partition: Partition) -> None:
        """Take all jobs, and acknowledge them."""
        queue = self.plane.queues.queue(partition, GROUP, SETTINGS)
        await stable(partition)
        taken = await queue.take(Offer("member", 100, 1 << 20))
        for record in taken.records:
            one = AckRange(record.offset, record.offset, AckType.ACCEPT, 0)
            await queue.acknowledge("member", [one])
        await stable(partition)

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.votes.look()


async def stable(partition: Partition) -> None:
    await asyncio.sleep(0)
    await eventually(lambda: partition.high_watermark == partition.log.log_end_offset)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.start()
    yield made
    await made.stop()


async def idle_queue(world: World, name: str = "q") -> Partition:
    """A queue that had a job, and was not used for its time."""
    partition = await world.create(name)
    world.add(partition)
    await world.finish(partition)
    await world.votes.look()
    await world.pass_time(IDLE_S)
    return partition


async def test_an_idle_queue_without_jobs_is_voted_for_and_paused(world: World) -> None:
    partition = await idle_queue(world)
    assert await world.voted() == (IdleVote(world.topic().id, 0, partition.leader_epoch),)
    assert partition.is_paused
    with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER"):
        world.add(partition)


async def test_no_vote_before_its_time(world: World) -> None:
    partition = await world.create()
    await world.votes.look()
    await world.pass_time(IDLE_S - 1)
    assert not partition.is_paused
    assert await world.node() is None


async def test_a_queue_that_was_created_stays(world: World) -> None:
    partition = await world.create(qbus_queue_idle_ms=-1)
    await world.votes.look()
    await world.pass_time(10 * IDLE_S)
    assert not partition.is_paused


async def test_one_that_no_job_was_ever_added_to_goes(world: World) -> None:
    await world.create()
    await world.votes.look()
    await world.pass_time(IDLE_S)
    assert await world.voted()


Keep = Callable[[World, Partition], Any]


async def _waiting(world: World, partition: Partition) -> None:
    world.add(partition)


async def _acquired(world: World, partition: Partition) -> None:
    world.add(partition)
    await stable(partition)
    queue = world.plane.queues.queue(partition, GROUP, SETTINGS)
    assert (await queue.take(Offer("member", 1, 1 << 20))).records


async def _of_another_group(world: World, partition: Partition) -> None:
    world.plane.queues.queue(partition, "other", SETTINGS)
    world.add(partition)
    await world.finish(partition)


async def _far_in_the_future(world: World, partition: Partition) -> None:
    world.add(partition, qbus_delay="300d")


async def _in_a_transaction(world: World, partition: Partition) -> None:
    asked = partition.begin_verification(7, 0, 0)
    partition.append(transactional(b"job", producer_id=7), 1, asked)
    await world.finish(partition)


async def _a_blocked_worker(world: World, partition: Partition) -> None:
    queue = world.plane.queues.queue(partition, GROUP, SETTINGS)
    await queue.started()
    queue.wait(_Waiter())


async def _a_consumer(world: World, partition: Partition) -> None:
    partition.watchers[_Watcher()] = None


async def _a_client_of_jobs(world: World, partition: Partition) -> None:
    world.used.add(partition)


class _Waiter:
    def ready(self, queue: object) -> bool:
        return False


class _Watcher:
    sees_hidden = False

    def advanced(self, size: int) -> None:
        pass


@pytest.mark.parametrize(
    "keep",
    [
        _waiting,
        _acquired,
        _of_another_group,
        _far_in_the_future,
        _in_a_transaction,
        _a_blocked_worker,
        _a_consumer,
        _a_client_of_jobs,
    ],
)
async def test_a_queue_that_is_in_use_stays(world: World, keep: Keep) -> None:
    partition = await world.create()
    await world.votes.look()
    await keep(world, partition)
    await stable(partition)
    for _ in range(20):
        await world.pass_time(IDLE_S)
        assert not partition.is_paused


async def test_an_append_that_is_refused_takes_the_vote_back(world: World) -> None:
    partition = await idle_queue(world)
    with pytest.raises(ApiError):
        world.add(partition)
    await eventually(lambda: not partition.is_paused)
    assert not await world.voted()
    world.add(partition)
    await world.pass_time(IDLE_S)
    assert not partition.is_paused, "it has a job"


async def test_a_worker_that_comes_takes_it_back_too(world: World) -> None:
    partition = await idle_queue(world)
    world.used.add(partition)
    await world.votes.look()
    assert not partition.is_paused
    assert not await world.voted()


async def test_one_that_is_configured_to_stay_is_resumed(world: World) -> None:
    partition = await idle_queue(world)
    await world.plane.metadata.put(replace(world.topic(), config={}))
    await world.votes.look()
    assert not partition.is_paused
    assert not await world.voted()


async def test_reclaimed_partitions_take_appends_on_return(world: World) -> None:
    partition = await idle_queue(world)
    other = await idle_queue(world, "other")
    await world.votes.reclaim([partition])
    world.add(partition)
    assert other.is_paused
    assert [vote.topic_id for vote in await world.voted()] == [world.topic("other").id]


async def test_what_was_deleted_meanwhile_is_never_resumed(world: World) -> None:
    """Else an append could be acknowledged in a topic that is gone."""
    partition = await idle_queue(world)
    await world.delete_in_store()
    await world.votes.reclaim([partition])
    assert "q" not in world.plane.metadata.topics, "it is known by now"
    with pytest.raises(ApiError):
        world.add(partition)


async def test_a_deletion_of_one_does_not_keep_others_paused(world: World) -> None:
    partition, other = await idle_queue(world), await idle_queue(world, "other")
    await world.delete_in_store()
    await world.votes.reclaim([partition, other])
    world.add(other)


async def test_while_the_store_does_not_answer_all_stays_paused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await idle_queue(world)

    async def fail(_: object) -> Any:
        raise StoreUnavailable("the connection is lost")

    monkeypatch.setattr(world.store, "transaction", fail)
    await world.votes.reclaim([partition])
    assert partition.is_paused, "whether the vote is stored is not known"
    monkeypatch.undo()
    await world.votes.reclaim([partition])
    assert not partition.is_paused


async def test_a_transaction_without_an_answer_is_found_out_about(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was applied: the version of the node is another one."""
    partition = await idle_queue(world)
    apply = world.store.transaction

    async def lose_answer(operations: Any) -> Any:
        await apply(operations)
        raise StoreUnavailable("the answer is lost")

    monkeypatch.setattr(world.store, "transaction", lose_answer)
    await world.votes.reclaim([partition])
    paused = [partition.is_paused]
    monkeypatch.undo()
    await world.votes.reclaim([partition])
    assert [*paused, partition.is_paused] == [True, False]
    assert not await world.voted()


async def test_a_later_epoch_makes_the_vote_void(world: World) -> None:
    partition = await idle_queue(world)
    topic = world.topic()
    info = replace(topic.partitions[0], leader_epoch=5, version=5)
    await world.plane.metadata.put(replace(topic, partitions=(info,)))
    assert not partition.is_paused
    world.add(partition)


async def test_a_broker_of_an_earlier_registration_cannot_vote(world: World) -> None:
    world.epoch = 7  # which is not the one in the store
    await world.restart()
    await idle_queue(world)
    assert await world.node() is None


async def test_another_reason_keeps_it_paused(world: World) -> None:
    partition = await idle_queue(world)
    partition.pause_appends("its log moves")
    world.used.add(partition)
    await world.votes.look()
    assert not await world.voted()
    assert partition.is_paused
    partition.resume_appends("its log moves")
    assert not partition.is_paused


async def test_a_restart_neither_begins_its_time_anew_nor_ends_it(world: World) -> None:
    partition = await world.create()
    world.add(partition)
    await world.finish(partition)
    await world.restart()
    partition = world.plane.partition("q")
    written = world.clock.time_ms() / 1000 - IDLE_S
    for name in os.listdir(partition.log.directory):  # noqa: PTH208
        os.utime(f"{partition.log.directory}/{name}", (written, written))
    await world.votes.look()
    assert not partition.is_paused, "clients come back first"
    await world.pass_time(GRACE_S)
    assert partition.is_paused


async def test_clients_are_not_heard_of_what_is_wrong_but_try_again(world: World) -> None:
    partition = await idle_queue(world)
    with pytest.raises(ApiError) as refused:
        partition.append(memoryview(build_batch([(None, b"job", (), 0)])), ACKS_ALL)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
