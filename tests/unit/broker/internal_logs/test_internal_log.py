"""An internal log: made at first use, loaded by replay, asked, and stored before it answers."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from qbus.broker.internal_logs import Outcome
from qbus.broker.internal_logs.batches import encode_batch
from qbus.broker.metadata.image import BrokerInfo, PartitionInfo
from qbus.broker.partition.partition import Partition
from qbus.errors import ApiError, ErrorCode
from qbus.records import iter_batches, iter_records, read_header
from qbus.records.encode import build_batch
from tests.support.waiting import eventually

from .counter import NAME, World, add, read


def partition(world: World, index: int = 0) -> Partition:
    return world.plane.partition(NAME, index)


def headers(world: World) -> list[tuple[int, int]]:
    """Base offset and number of records of each batch in the log."""
    found = partition(world).log.read(0, 1 << 20, wait=True)
    assert found is not None
    with found:
        return [
            (header.base_offset, header.records_count) for header, _ in iter_batches(found.read())
        ]


def marker_batch(producer_id: int, epoch: int, *, committed: bool) -> bytearray:
    """A marker in Kafka's format: control and transactional, type 0 aborts and 1 commits."""
    key = b"\x00\x00\x00\x01" if committed else b"\x00\x00\x00\x00"
    return build_batch(
        [(key, b"\x00\x00\x00\x00\x00\x00", (), 1)],
        attributes=0x30,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=-1,
    )


class Packed:
    """Records whose keys are their numbers in the batch, and whose values are 1."""

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self.size = size

    def add_to(self, batch: bytearray, first: int, /) -> None:
        for number in range(first, first + self.count):
            key = str(number).encode()
            record = bytes([0, 0, 2 * number, 2 * len(key)]) + key + b"\x021\x00"
            batch += bytes([2 * len(record)]) + record


class TestTheTopic:
    async def test_is_made_when_somebody_first_asks_for_a_coordinator(self, world: World) -> None:
        assert NAME not in world.plane.metadata.topics
        leader = await world.log.coordinator("a")
        assert leader == BrokerInfo(1, "127.0.0.1", 9092)
        (made,) = world.controller.made
        assert (made.name, made.partitions, made.replication_factor) == (NAME, 1, 1)
        assert made.config["cleanup.policy"] == "compact"
        assert made.config["unclean.leader.election.enable"] == "false"

    async def test_is_made_once(self, world: World) -> None:
        await asyncio.gather(*(world.log.coordinator(str(number)) for number in range(20)))
        assert len(world.controller.made) == 1

    async def test_that_another_broker_makes_at_the_same_time_is_as_good(
        self, world: World
    ) -> None:
        world.controller.refusal = ApiError(ErrorCode.TOPIC_ALREADY_EXISTS)
        assert await world.log.coordinator("a") is None

    async def test_that_cannot_be_made_leaves_the_coordinator_unavailable(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.controller.refusal = ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "3 are needed")
        for _ in range(3):
            with pytest.raises(ApiError, match="3 are needed") as refused:
                await world.log.coordinator("a")
            assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert sum("cannot be created" in line for line in caplog.messages) == 1

    async def test_has_no_coordinator_where_its_partition_has_no_live_leader(
        self, world: World
    ) -> None:
        await world.create()
        del world.plane.metadata.brokers[1]
        assert await world.log.coordinator("a") is None

    async def test_has_no_coordinator_while_it_is_not_certain_who_leads(self, world: World) -> None:
        await world.create()
        world.plane.metadata.suspected.add((NAME, 0))
        assert await world.log.coordinator("a") is None


class TestAsking:
    async def test_answers_what_the_operation_answers(self, world: World) -> None:
        await world.create()
        assert await world.log.ask("a", add("x", 3)) == 3
        assert await world.log.ask("a", add("x", 4)) == 7
        assert await world.log.ask("a", read("x")) == 7

    async def test_operations_of_one_turn_see_each_other_and_share_a_batch(
        self, world: World
    ) -> None:
        await world.create()
        answers = await asyncio.gather(*(world.log.ask("a", add("x")) for _ in range(50)))
        assert answers == list(range(1, 51))
        assert headers(world) == [(0, 50)]
        assert world.log.counts.writes == 1
        assert world.log.counts.written == 50

    async def test_one_that_is_refused_stores_nothing_and_hinders_no_other(
        self, world: World
    ) -> None:
        await world.create()

        def refuse(*_: object) -> Outcome[None]:
            raise ApiError(ErrorCode.PRODUCER_FENCED)

        first, refused, last = await asyncio.gather(
            world.log.ask("a", add("x")),
            world.log.ask("a", refuse),
            world.log.ask("a", add("x")),
            return_exceptions=True,
        )
        assert (first, last) == (1, 2)
        assert isinstance(refused, ApiError)
        assert refused.code is ErrorCode.PRODUCER_FENCED
        assert headers(world) == [(0, 2)]

    async def test_one_that_is_defective_hinders_no_other(self, world: World) -> None:
        await world.create()

        def fail(*_: object) -> Outcome[None]:
            raise RuntimeError("a defect")

        first, failed = await asyncio.gather(
            world.log.ask("a", add("x")), world.log.ask("a", fail), return_exceptions=True
        )
        assert first == 1
        assert isinstance(failed, ApiError)
        assert failed.code is ErrorCode.UNKNOWN_SERVER_ERROR

    async def test_a_check_is_made_in_the_same_step(self, world: World) -> None:
        await world.create()
        seen: list[Partition] = []

        def check(one: Partition) -> None:
            seen.append(one)
            raise ApiError(ErrorCode.INVALID_TXN_STATE)

        with pytest.raises(ApiError, match="INVALID_TXN_STATE"):
            await world.log.ask("a", add("x"), check=check)
        assert seen == [partition(world)]
        assert world.counter().numbers == {}

    async def test_records_that_are_many_are_written_in_several_batches(self, world: World) -> None:
        await world.create()
        value = b"1" * 200_000

        def operation(*_: object) -> Outcome[str]:
            return Outcome("done", [(b"a", value), (b"b", value), (b"c", value), (b"d", value)])

        # A number of 200,000 digits is not to be read as one.
        world.counter().replay = lambda *_: None  # type: ignore[method-assign]
        assert await world.log.ask("a", operation) == "done"
        assert headers(world) == [(0, 2), (2, 2)]

    async def test_records_that_come_packed_have_batches_of_their_own(self, world: World) -> None:
        """They are in the order of the operations, and applied at the offsets that they get."""
        await world.create()
        seen: list[int] = []

        def packed(count: int, size: int = 1) -> Any:
            return lambda *_: Outcome("done", packed=Packed(count, size), apply=seen.append)

        answers = await asyncio.gather(
            *(world.log.ask("a", packed(count)) for count in (2, 3)),
            world.log.ask("a", add("x")),
            world.log.ask("a", packed(1)),
            world.log.ask("a", add("x")),
            world.log.ask("a", packed(2, size=300_000)),
            world.log.ask("a", packed(2, size=300_000)),
        )
        assert answers == ["done", "done", 1, "done", 2, "done", "done"]
        assert seen == [0, 2, 6, 8, 10]
        assert headers(world) == [(0, 5), (5, 1), (6, 1), (7, 1), (8, 2), (10, 2)]
        assert (world.log.counts.writes, world.log.counts.written) == (1, 12)
        assert world.counter().history == [(5, "x", b"1", None), (7, "x", b"2", None)]
        await world.restart()
        await world.ready()
        assert [entry[:2] for entry in world.counter().history] == [
            *((offset, str(offset)) for offset in range(5)),
            (5, "x"),
            (6, "0"),
            (7, "x"),
            *((offset, str(offset % 2)) for offset in range(8, 12)),
        ]

    @pytest.mark.sources
    async def test_records_that_come_packed_are_refused_where_the_log_takes_none(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await world.create()

        def refuse(_: object) -> None:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)

        monkeypatch.setattr(Partition, "check_takes_own", refuse)
        code = await world.code("a", lambda *_: Outcome(None, packed=Packed(1, 1), apply=print))
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert partition(world).log.log_end_offset == 0

    async def test_keys_of_other_brokers_are_refused(self, world: World) -> None:
        assert await world.code("a", add("x")) is ErrorCode.NOT_COORDINATOR
        assert not world.log.is_led("a")

    async def test_nobody_who_left_is_answered(self, world: World) -> None:
        await world.create()
        asked = asyncio.ensure_future(world.log.ask("a", add("x")))
        await asyncio.sleep(0)
        asked.cancel()
        assert await world.log.ask("a", add("x")) == 2


class TestWhatIsAcknowledged:
    async def test_an_answer_waits_until_its_records_are_on_stable_storage(
        self, world: World
    ) -> None:
        await world.create()
        world.plane.disk.hold_syncs()
        asked = asyncio.ensure_future(world.log.ask("a", add("x")))
        reading = asyncio.ensure_future(world.log.ask("a", read("x")))
        await eventually(lambda: world.counter().numbers == {"x": 1})
        await asyncio.sleep(0.05)
        assert not asked.done()
        assert not reading.done()  # it would tell what may be lost
        world.plane.disk.release_syncs()
        assert await asked == 1
        assert await reading == 1

    async def test_so_does_a_refusal_that_rests_on_them(self, world: World) -> None:
        await world.create()
        world.plane.disk.hold_syncs()

        def refuse_if_counted(counter: object, _: int) -> Outcome[None]:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)

        asked = asyncio.ensure_future(world.log.ask("a", add("x")))
        await eventually(lambda: world.counter().numbers == {"x": 1})
        refused = asyncio.ensure_future(world.code("a", refuse_if_counted))
        await asyncio.sleep(0.05)
        assert not refused.done()
        world.plane.disk.release_syncs()
        assert await refused is ErrorCode.CONCURRENT_TRANSACTIONS
        await asked

    async def test_a_refusal_with_records_waits_for_these(self, world: World) -> None:
        await world.create()
        world.plane.disk.hold_syncs()

        def refuse(*_: object) -> Outcome[None]:
            refusal = ApiError(ErrorCode.INVALID_TXN_STATE)
            return Outcome(None, [(b"x", b"1")], refusal=refusal)

        refused = asyncio.ensure_future(world.code("a", refuse))
        await eventually(lambda: world.counter().numbers == {"x": 1})
        await asyncio.sleep(0.05)
        assert not refused.done()
        world.plane.disk.release_syncs()
        assert await refused is ErrorCode.INVALID_TXN_STATE

    async def test_one_that_is_not_acknowledged_is_not_told(self, world: World) -> None:
        """Another broker leads: it may know what this one refuses."""
        await world.create()
        world.plane.disk.hold_syncs()

        def refuse(*_: object) -> Outcome[None]:
            refusal = ApiError(ErrorCode.INVALID_TXN_STATE)
            return Outcome(None, [(b"x", b"1")], refusal=refusal)

        refused = asyncio.ensure_future(world.code("a", refuse))
        await eventually(lambda: world.counter().numbers == {"x": 1})
        (shard,) = world.log.shards()
        shard.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert await refused is ErrorCode.NOT_COORDINATOR
        world.plane.disk.release_syncs()

    async def test_what_is_to_be_done_then_is_done_though_nobody_waits(self, world: World) -> None:
        await world.create()
        world.plane.disk.hold_syncs()
        done: list[str] = []

        def operation(*_: object) -> Outcome[None]:
            return Outcome(None, [(b"x", b"1")], acknowledged=lambda: done.append("told"))

        asked = asyncio.ensure_future(world.log.ask("a", operation))
        await eventually(lambda: world.counter().numbers == {"x": 1})
        asked.cancel()
        assert done == []
        world.plane.disk.release_syncs()
        await eventually(lambda: done == ["told"])

    async def test_one_that_is_late_is_answered_with_an_error_and_done_all_the_same(
        self, world: World
    ) -> None:
        await world.create()
        world.plane.disk.hold_syncs()
        done: list[str] = []

        def operation(*_: object) -> Outcome[None]:
            return Outcome(None, [(b"x", b"1")], acknowledged=lambda: done.append("told"))

        asked = asyncio.ensure_future(world.code("a", operation))
        await eventually(lambda: world.counter().numbers == {"x": 1})
        (shard,) = world.log.shards()
        shard.tick(-1.0)
        assert await asked is ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.plane.disk.release_syncs()
        await eventually(lambda: done == ["told"])


class TestLoading:
    async def test_a_restart_brings_everything_back(self, world: World) -> None:
        await world.create()
        for name in ("x", "y", "z"):
            await world.log.ask("a", add(name, 5))
        await world.log.ask("a", lambda *_: Outcome(None, [(b"y", None)]))
        history = world.counter().history
        await world.restart()
        await world.ready()
        assert world.counter().numbers == {"x": 5, "z": 5}
        assert world.counter().history == history
        assert world.log.counts.replayed == 4

    async def test_refuses_until_it_is_done(self, world: World) -> None:
        await world.create()
        await world.log.ask("a", add("x"))
        world.log._load_again(next(world.log.shards()))
        assert await world.code("a", read("x")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert world.log.is_led("a")
        await world.ready()
        assert await world.log.ask("a", read("x")) == 1

    async def test_tells_who_follows_it(self, world: World) -> None:
        await world.create()
        first = next(world.log.shards())
        assert world.loaded == [first]
        world.log._load_again(first)
        assert world.unloaded == [first]
        await world.ready()
        assert world.loaded == [first, next(world.log.shards())]

    async def test_a_record_that_cannot_be_taken_in_is_tried_again_and_said(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        await world.create()
        partition(world).append_own(encode_batch([(b"x", b"no number")], 1), 1)
        world.log._load_again(next(world.log.shards()))
        await eventually(lambda: world.log.counts.load_failures > 0)
        (said,) = [line for line in caplog.messages if "__counts-0 cannot be loaded for" in line]
        assert "the record at offset 0 cannot be read" in said
        assert await world.code("a", read("x")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    async def test_a_broker_that_leads_no_more_refuses_and_forgets(self, world: World) -> None:
        await world.create()
        await world.log.ask("a", add("x"))
        world.plane.disk.hold_syncs()
        waiting = asyncio.ensure_future(world.code("a", add("x")))
        await eventually(lambda: world.counter().numbers == {"x": 2})
        topic = world.plane.metadata.topics[NAME]
        elsewhere = PartitionInfo(2, 1, (1, 2), (2,))
        await world.plane.metadata.put(replace(topic, partitions=(elsewhere,)))
        assert await waiting is ErrorCode.NOT_COORDINATOR
        assert await world.code("a", read("x")) is ErrorCode.NOT_COORDINATOR
        assert list(world.log.machines()) == []
        world.plane.disk.release_syncs()

    async def test_a_broker_that_leads_again_loads_what_others_wrote(self, world: World) -> None:
        await world.create()
        await world.log.ask("a", add("x"))
        topic = world.plane.metadata.topics[NAME]
        elsewhere = PartitionInfo(2, 1, (1, 2), (1, 2))
        await world.plane.metadata.put(replace(topic, partitions=(elsewhere,)))
        batch = encode_batch([(b"x", b"41")], 1)
        batch[:8] = (1).to_bytes(8)
        batch[12:16] = (1).to_bytes(4)
        partition(world).append_from_leader(memoryview(batch))
        again = PartitionInfo(1, 2, (1,), (1,))
        await world.plane.metadata.put(replace(topic, partitions=(again,)))
        await world.ready()
        assert await world.log.ask("a", add("x")) == 42

    async def test_the_end_of_the_log_counts_only_once_it_is_acknowledged(
        self, world: World
    ) -> None:
        await world.create()
        world.plane.disk.hold_syncs()
        partition(world).append_own(encode_batch([(b"x", b"1")], 1), 1)
        world.log._load_again(next(world.log.shards()))
        await asyncio.sleep(0.1)
        assert await world.code("a", read("x")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        world.plane.disk.release_syncs()
        await world.ready()
        assert await world.log.ask("a", read("x")) == 1

    async def test_markers_of_others_are_passed_over_as_they_are_read(self, world: World) -> None:
        await world.create()
        await world.log.ask("a", add("x", 1, producer=(7, 0)))
        await world.log.ask("a", add("y", 2, producer=(8, 3)))
        own = partition(world)
        own.append_own(marker_batch(7, 0, committed=True), 1)
        own.append_own(marker_batch(8, 3, committed=False), 1)
        world.log._load_again(next(world.log.shards()))
        await world.ready()
        assert world.counter().numbers == {"x": 1}
        assert world.counter().pending == {}
        assert world.counter().history == [
            (0, "x", b"1", (7, 0)),
            (1, "y", b"2", (8, 3)),
            (7, 0, True),
            (8, 3, False),
        ]

    async def test_a_long_log_is_read_in_parts(self, world: World) -> None:
        await world.create()
        for _ in range(30):
            await asyncio.gather(*(world.log.ask("a", add("x" * 500)) for _ in range(100)))
        await world.restart()
        await world.ready()
        assert world.log.counts.replayed == 3000
        assert world.counter().numbers == {"x" * 500: 3000}


class TestTransactionsInTheLog:
    async def test_records_of_a_producer_are_a_batch_of_its_transaction(self, world: World) -> None:
        await world.create()
        plain, first, second = await asyncio.gather(
            world.log.ask("a", add("x")),
            world.log.ask("a", add("y", producer=(7, 2))),
            world.log.ask("a", add("z", producer=(7, 2))),
        )
        assert (plain, first, second) == (1, 1, 1)
        found = partition(world).log.read(0, 1 << 20, wait=True)
        assert found is not None
        with found:
            batches = [
                (header, list(iter_records(raw))) for header, raw in iter_batches(found.read())
            ]
        assert [len(records) for _, records in batches] == [1, 2]
        header = batches[1][0]
        assert header.is_transactional
        assert not header.is_control
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 0)
        assert not batches[0][0].is_transactional
        assert batches[0][0].producer_id == -1

    async def test_a_marker_ends_it_at_once(self, world: World) -> None:
        await world.create()
        await world.log.ask("a", add("x", 5, producer=(7, 0)))
        assert world.counter().numbers == {}
        partition(world).end_transaction(7, 1, 0, committed=True, version=2)
        assert world.counter().numbers == {"x": 5}
        assert await world.log.ask("a", read("x")) == 5

    async def test_the_marker_counts_as_well_when_it_is_loaded(self, world: World) -> None:
        await world.create()
        await world.log.ask("a", add("x", 5, producer=(7, 0)))
        partition(world).end_transaction(7, 1, 0, committed=True, version=2)
        history = world.counter().history
        await world.restart()
        await world.ready()
        assert world.counter().history == history


class TestWhatCannotBeStored:
    async def test_is_refused_before_anything_changes(self, world: World) -> None:
        await world.create()
        topic = world.plane.metadata.topics[NAME]
        alone = replace(
            topic,
            partitions=(PartitionInfo(1, 0, (1, 2), (1,), 1),),
            config={**topic.config, "min.insync.replicas": "2", "qbus.durability": "memory"},
        )
        await world.plane.metadata.put(alone)
        assert await world.code("a", add("x")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.counter().numbers == {}

    async def test_hinders_nobody_who_only_reads(self, world: World) -> None:
        await world.create()
        await world.log.ask("a", add("x"))
        topic = world.plane.metadata.topics[NAME]
        alone = replace(
            topic,
            partitions=(PartitionInfo(1, 0, (1, 2), (1,), 1),),
            config={**topic.config, "min.insync.replicas": "2"},
        )
        await world.plane.metadata.put(alone)
        assert await world.code("a", add("x")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await world.log.ask("a", read("x")) == 1

    async def test_makes_the_shard_load_again_when_the_disk_refuses_it(self, world: World) -> None:
        await world.create()
        await world.log.ask("a", add("x"))
        world.plane.disk.fill()
        assert await world.code("a", add("x")) is not ErrorCode.NONE
        world.plane.disk.empty()
        await world.ready()
        assert await world.log.ask("a", read("x")) == 1
        assert await world.log.ask("a", add("x")) == 2

    async def test_makes_it_load_again_when_the_state_cannot_take_it_in(self, world: World) -> None:
        await world.create()
        await world.log.ask("a", add("x"))
        world.counter().is_broken = True
        assert await world.code("a", add("x")) is not ErrorCode.NONE
        await world.ready()
        assert await world.log.ask("a", add("x")) == 2


class TestTimes:
    async def test_what_is_due_is_done(self, world: World) -> None:
        await world.create()
        counter = world.counter()
        counter.next_tick_ms = world.plane.clock.time_ms() + 1000
        world.log.tick()
        await world.log.ask("a", read("x"))
        assert counter.ticks == 0
        world.plane.clock.advance(1)
        world.log.tick()
        await world.log.ask("a", read("x"))
        assert counter.numbers == {"ticks": 1}


async def test_keys_are_spread_over_the_partitions_and_never_meet(world: World) -> None:
    world.topic = world.topic._replace(partitions=5)
    await world.create()
    await eventually(lambda: len(list(world.log.shards())) == 5)
    names = [f"key-{number}" for number in range(50)]
    await asyncio.gather(*(world.log.ask(name, add(name)) for name in names))
    counters = list(world.log.machines())
    assert sorted(name for counter in counters for name in counter.numbers) == sorted(names)
    assert all(counter.numbers for counter in counters)
    for name in names:
        assert world.counter(name).index == world.log.partition_for(name)


def test_a_batch_of_no_transaction_has_no_producer() -> None:
    header = read_header(encode_batch([(b"k", None)], 5))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.base_timestamp == 5
