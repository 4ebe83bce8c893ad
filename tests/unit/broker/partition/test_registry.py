"""New logs by the hundred are made in the background; what the metadata says by then decides."""

import asyncio
import threading
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.log import LogConfig, TopicPartition
from qbus.broker.metadata.image import PartitionInfo, Topic
from qbus.broker.partition.partition import Partition, Role
from qbus.config import TopicConfig
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import StoreUnavailable
from tests.support.data_plane import NODE, DataPlane
from tests.support.logs import batch
from tests.support.waiting import eventually

MANY = 100


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    plane = DataPlane(tmp_path)
    await plane.start()
    yield plane
    await plane.stop()


class Gate:
    """Keeps logs from being made until it is opened; ``begun`` are those that wait at it."""

    def __init__(self, plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[tuple[str, int]] = []
        self._open = threading.Event()
        create = plane.logs.create

        def wait(topic: str, index: int, *rest: Any, **options: Any) -> Any:
            self.begun.append((topic, index))
            assert self._open.wait(30)
            return create(topic, index, *rest, **options)

        monkeypatch.setattr(plane.logs, "create", wait)

    def open(self) -> None:
        """Let all through, from now on."""
        self._open.set()


@pytest.fixture
def gate(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(plane, monkeypatch)
    yield gate
    gate.open()


def directories(plane: DataPlane) -> set[str]:
    """The partitions' directories on disk, deleted ones left out."""
    logs = plane.directory / "logs"
    return {p.name for p in logs.iterdir() if p.is_dir() and not p.name.endswith("-delete")}


def aside(plane: DataPlane) -> list[Path]:
    """The partitions' directories that were set aside."""
    return [*(plane.directory / "logs").glob("*-stray")]


async def all_opened(plane: DataPlane) -> None:
    await eventually(lambda: not plane.replicas._registry.opening)


async def begin(plane: DataPlane, gate: Gate, partitions: int = MANY) -> None:
    """Create a topic of many partitions, of which the first ones are being made."""
    await plane.metadata.put(plane.metadata.new_topic("many", partitions))
    await eventually(lambda: gate.begun)


async def test_a_change_does_not_wait_for_many_logs(plane: DataPlane, gate: Gate) -> None:
    await begin(plane, gate)
    assert plane.replicas._registry.opening == MANY
    assert plane.replicas.get_partition("many", 0) is None
    assert plane.replicas.why_missing("many", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    gate.open()
    await all_opened(plane)
    assert all(plane.partition("many", i).check() is ErrorCode.NONE for i in range(MANY))
    assert directories(plane) == {f"many-{i}" for i in range(MANY)}


async def test_it_waits_for_a_few(plane: DataPlane) -> None:
    await plane.create("few", 64)
    assert all(plane.partition("few", i).check() is ErrorCode.NONE for i in range(64))


async def test_a_change_is_followed_while_many_are_made(plane: DataPlane, gate: Gate) -> None:
    """They get the role, the epoch and the settings that the metadata says by then."""
    await begin(plane, gate)
    topic = plane.metadata.topics["many"]
    follows = PartitionInfo(2, 5, (1, 2), (1, 2))
    changed = replace(
        topic, partitions=(follows, *topic.partitions[1:]), config={"max.message.bytes": "100"}
    )
    await plane.metadata.put(changed)
    gate.open()
    await all_opened(plane)
    first, second = plane.partition("many", 0), plane.partition("many", 1)
    assert (first.leader_id, first.leader_epoch) == (2, 5)
    assert first.check() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert second.check() is ErrorCode.NONE
    assert second.log.config.max_message_bytes == 100
    assert gate.begun.count(("many", 0)) == 1


async def test_a_topic_deleted_while_it_is_made_leaves_nothing(
    plane: DataPlane, gate: Gate
) -> None:
    await begin(plane, gate)
    await plane.metadata.remove("many")
    assert plane.replicas.why_missing("many", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    gate.open()
    await all_opened(plane)
    assert directories(plane) == set()
    assert plane.logs.logs() == {}
    assert plane.replicas.partitions_of("many") == {}
    assert len(gate.begun) < MANY, "what was not begun yet is not made"


async def test_its_namesake_gets_logs_of_its_own(plane: DataPlane, gate: Gate) -> None:
    await begin(plane, gate)
    await plane.metadata.remove("many")
    namesake = await plane.metadata.put(plane.metadata.new_topic("many", 3))
    gate.open()
    await all_opened(plane)
    assert {log.topic_id for log in plane.logs.logs().values()} == {namesake.id}
    assert directories(plane) == {"many-0", "many-1", "many-2"}
    found = plane.replicas.partitions_of("many")
    assert found.keys() == {0, 1, 2}
    assert found == plane.replicas.partitions_of(namesake.id)
    found[0].append(batch(b"x"), 1)
    assert found[0].log.log_end_offset == 1


async def test_what_moved_to_other_brokers_while_it_is_made_goes(
    plane: DataPlane, gate: Gate
) -> None:
    await begin(plane, gate)
    topic = plane.metadata.topics["many"]
    elsewhere = PartitionInfo(2, 1, (2,), (2,))
    await plane.metadata.put(replace(topic, partitions=(elsewhere, *topic.partitions[1:])))
    gate.open()
    await all_opened(plane)
    assert directories(plane) == {f"many-{i}" for i in range(1, MANY)}
    assert plane.replicas.get_partition("many", 0) is None
    assert plane.partition("many", 1).check() is ErrorCode.NONE


async def test_a_stop_does_not_wait_for_all_and_the_next_start_makes_the_rest(
    plane: DataPlane, gate: Gate
) -> None:
    await begin(plane, gate)
    stopping = asyncio.create_task(plane.stop())
    await asyncio.sleep(0)
    gate.open()
    await stopping
    assert len(gate.begun) < MANY
    await plane.start()
    assert all(plane.partition("many", i).check() is ErrorCode.NONE for i in range(MANY))


async def test_one_that_cannot_be_made_stops_no_other(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = plane.logs.create

    def fail(topic: str, index: int, *rest: Any, **options: Any) -> Any:
        if index == 7:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")
        if index == 8:
            raise RuntimeError("a defect")
        return create(topic, index, *rest, **options)

    monkeypatch.setattr(plane.logs, "create", fail)
    await plane.metadata.put(plane.metadata.new_topic("many", MANY))
    await all_opened(plane)
    assert plane.replicas.why_missing("many", 7) is ErrorCode.KAFKA_STORAGE_ERROR
    assert plane.replicas._registry.failed == 2
    assert len(plane.replicas.partitions_of("many")) == MANY - 2
    monkeypatch.setattr(plane.logs, "create", create)
    await plane.replicas._registry.retry()
    assert plane.replicas._registry.failed == 0
    assert plane.partition("many", 7).check() is ErrorCode.NONE


async def test_what_is_new_in_the_turn_in_which_the_last_opener_ends_is_opened(
    plane: DataPlane,
) -> None:
    await plane.metadata.put(plane.metadata.new_topic("many", MANY))
    while plane.replicas._registry.opening:  # noqa: ASYNC110 - that very turn is what is wanted
        await asyncio.sleep(0)
    await plane.create("late")
    assert plane.partition("late", 0).check() is ErrorCode.NONE


async def test_a_retry_opens_what_waits_though_no_opener_runs(plane: DataPlane, gate: Gate) -> None:
    await begin(plane, gate)
    openers = list(plane.replicas._registry._openers)
    for opener in openers:
        opener.cancel()
    await asyncio.wait(openers)
    gate.open()
    await plane.replicas._registry.retry()
    await all_opened(plane)
    assert len(plane.replicas.partitions_of("many")) == MANY - len(openers)


async def test_a_slow_log_delays_no_other(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, finish = plane.logs.create, threading.Event()

    def slow(topic: str, index: int, *rest: Any, **options: Any) -> Any:
        assert (topic, index) != ("many", MANY - 1) or finish.wait(30)
        return create(topic, index, *rest, **options)

    monkeypatch.setattr(plane.logs, "create", slow)
    await plane.metadata.put(plane.metadata.new_topic("many", MANY))
    await eventually(lambda: plane.replicas._registry.opening == 1)
    change = asyncio.create_task(plane.metadata.put(plane.metadata.new_topic("next")))
    try:
        await eventually(lambda: plane.replicas.get_partition("next", 0) is not None)
        assert plane.replicas._registry.opening == 1
        assert plane.metrics.gauges["opening_partitions"][1]() == 1
    finally:
        finish.set()
        await change


async def test_many_are_deleted_with_what_was_written_down_of_them(plane: DataPlane) -> None:
    for name in ("gone", "kept"):
        await plane.metadata.put(
            plane.metadata.new_topic(name, MANY, {"qbus.durability": "memory"})
        )
        await all_opened(plane)
    for name in ("gone", "kept"):
        for index in range(MANY):
            plane.partition(name, index).append(batch(b"x"), 1)
    (directory,) = plane.logs.directories
    logs = [*plane.logs.logs().values()]
    plane.logs.checkpoint_high_watermarks(lambda: [(log, 1) for log in logs])
    await plane.metadata.remove("gone")
    await all_deleted(plane)
    assert directories(plane) == {f"kept-{i}" for i in range(MANY)}
    written = (plane.directory / "logs" / "replication-offset-checkpoint").read_text()
    assert "gone" not in written
    assert written.count("kept") == MANY
    await plane.metadata.put(plane.metadata.new_topic("gone", MANY))
    await all_opened(plane)
    assert {plane.partition("gone", i).log.log_end_offset for i in range(MANY)} == {0}
    assert not directory.offline


# What is the same as before


async def test_a_change_of_a_topic_touches_those_of_its_partitions_that_it_is_about(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, applied = plane.replicas._registry, list[int]()
    apply = registry._apply

    def count(partition: Partition, info: PartitionInfo, config: TopicConfig) -> None:
        applied.append(partition.index)
        apply(partition, info, config)

    topic = await plane.metadata.put(plane.metadata.new_topic("t", 3))
    monkeypatch.setattr(registry, "_apply", count)
    more = PartitionInfo(topic.partitions[0].leader, 0, (NODE,), (NODE,))
    grown = replace(topic, partitions=(*topic.partitions, more))
    await plane.metadata.put(grown)
    assert applied == [3]
    later = replace(more, leader_epoch=1, version=1)
    changed = replace(grown, partitions=(*grown.partitions[:2], later, more))
    await plane.metadata.put(changed)
    assert applied == [3, 2]
    await plane.metadata.put(replace(changed, config={"retention.ms": "5"}))
    assert sorted(applied[2:]) == [0, 1, 2, 3]
    assert plane.partition("t", 0).log.config.retention_ms == 5


async def test_a_partition_that_refuses_everything_is_looked_at_with_any_change(
    plane: DataPlane,
) -> None:
    topic = await plane.metadata.put(plane.metadata.new_topic("t", 2))
    partition = plane.partition("t", 0)
    partition.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    later = replace(topic.partitions[1], leader_epoch=1, version=1)
    await plane.metadata.put(replace(topic, partitions=(topic.partitions[0], later)))
    assert partition.check() is ErrorCode.NONE


async def test_what_could_not_be_changed_is_with_the_next_change(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = plane.replicas._registry
    topic = await plane.metadata.put(plane.metadata.new_topic("t", 2))
    monkeypatch.setattr(registry, "_apply", fail)
    topic = replace(topic, config={"retention.ms": "5"})
    with pytest.raises(ValueError, match="a defect"):
        await plane.metadata.put(topic)
    monkeypatch.undo()
    later = replace(topic.partitions[1], leader_epoch=1, version=1)
    await plane.metadata.put(replace(topic, partitions=(topic.partitions[0], later)))
    assert [plane.partition("t", one).log.config.retention_ms for one in (0, 1)] == [5, 5]


def fail(*_: object) -> None:
    raise ValueError("a defect")


# Topics that are deleted while something else is done with them


async def test_a_topic_that_is_deleted_while_it_is_looked_at_again_is_not_opened(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = plane.replicas._registry
    topic = await plane.metadata.put(plane.metadata.new_topic("t", 2))
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_: Topic) -> None:
        begun.set()
        await go_on.wait()

    monkeypatch.setattr(registry, "_prepare", wait)
    registry._failed.add(("t", 0))
    again = asyncio.create_task(registry.retry())
    await begun.wait()
    deleting = asyncio.create_task(plane.metadata.remove("t"))
    await eventually(lambda: not plane.replicas.partitions_of("t"))
    go_on.set()
    await asyncio.gather(again, deleting)
    assert plane.replicas.partitions_of("t") == plane.replicas.partitions_of(topic.id) == {}
    assert not [*registry]
    assert directories(plane) == set()


@pytest.mark.parametrize("count", [3, MANY])
async def test_a_log_that_took_the_place_of_a_deleted_one_stays(
    plane: DataPlane, count: int
) -> None:
    """What is tried again may come to the new topic before the change is followed."""
    old = await created(plane, "t", count)
    registry, namesake = plane.replicas._registry, plane.metadata.new_topic("t", 3)
    async with registry._changing:
        changing = asyncio.create_task(plane.metadata.put(namesake))
        await eventually(lambda: not plane.replicas.partitions_of(old.id))
        await registry._bring(["t"])
    await changing
    await all_deleted(plane)
    for index in range(3):
        partition = plane.partition("t", index)
        assert (partition.log.topic_id, partition.log.log_end_offset) == (namesake.id, 0)
        partition.append(batch(b"new"), 1)
    await plane.restart()
    assert [plane.partition("t", index).log.log_end_offset for index in range(3)] == [1] * 3


async def test_topics_may_come_while_all_are_looked_at(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a broker starts."""
    registry, metadata = plane.replicas._registry, plane.metadata
    await metadata.put(metadata.new_topic("t"))
    prepare = registry._prepare

    async def bring_another(topic: Topic) -> None:
        metadata.topics["u"] = metadata.new_topic("u")
        await prepare(topic)

    monkeypatch.setattr(registry, "_prepare", bring_another)
    async with registry._changing:
        await registry._bring(metadata.topics)
    assert plane.replicas.partitions_of("u") == {}, "that comes with its change"


# Topics deleted by the hundred


@dataclass
class Removing:
    """Keeps many logs from being removed until it is opened; ``begun`` counts the calls."""

    plane: DataPlane
    begun: int = 0
    error: ApiError | None = None

    def __post_init__(self) -> None:
        self._open = threading.Event()
        self._delete_many = self.plane.logs.delete_many

    def __call__(
        self, partitions: Collection[TopicPartition], of: Any = None
    ) -> dict[TopicPartition, ApiError]:
        if of is not None and len(partitions) > 1:
            self.begun += 1
            assert self._open.wait(30)
            if self.error is not None:
                return dict.fromkeys(partitions, self.error)
        return self._delete_many(partitions, of)

    def open(self) -> None:
        """Let all through, from now on."""
        self._open.set()


@pytest.fixture
def removing(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Removing]:
    removing = Removing(plane)
    monkeypatch.setattr(plane.logs, "delete_many", removing)
    yield removing
    removing.open()


async def all_deleted(plane: DataPlane) -> None:
    await eventually(lambda: not plane.replicas._registry.deleting)


async def created(plane: DataPlane, name: str = "many", partitions: int = MANY) -> Topic:
    topic = await plane.metadata.put(
        plane.metadata.new_topic(name, partitions, {"qbus.durability": "memory"})
    )
    await all_opened(plane)
    for index in range(partitions):
        plane.partition(name, index).append(batch(b"old"), 1)
    return topic


async def test_a_change_does_not_wait_until_many_logs_are_removed(
    plane: DataPlane, removing: Removing
) -> None:
    old = await created(plane)
    partition = plane.partition("many", 7)
    await plane.metadata.remove("many")
    assert plane.replicas.partitions_of("many") == plane.replicas.partitions_of(old.id) == {}
    assert plane.replicas.why_missing("many", 7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert plane.metrics.gauges["deleting_partitions"][1]() == MANY
    assert len(directories(plane)) == MANY
    await eventually(lambda: partition.check() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    removing.open()
    await all_deleted(plane)
    assert directories(plane) == set()
    assert plane.logs.logs() == {}
    plane.clock.advance(61)
    assert plane.logs.empty_trash() == MANY
    assert not [*(plane.directory / "logs").glob("*-delete")]
    assert not (plane.directory / "logs" / "deleted-topics-checkpoint").exists()


async def test_a_few_are_removed_before_the_change_is_made(
    plane: DataPlane, removing: Removing
) -> None:
    await created(plane, "few", 3)
    await plane.metadata.remove("few")
    assert directories(plane) == set()
    assert not removing.begun


async def test_a_namesake_of_what_is_being_removed_is_empty_and_stays(
    plane: DataPlane, removing: Removing
) -> None:
    await created(plane)
    await plane.metadata.remove("many")
    namesake = await plane.metadata.put(plane.metadata.new_topic("many", 3))
    for index in range(3):
        assert plane.partition("many", index).log.log_end_offset == 0
        plane.partition("many", index).append(batch(b"new"), 1)
    await eventually(lambda: removing.begun)
    removing.open()
    await all_deleted(plane)
    assert {log.topic_id for log in plane.logs.logs().values()} == {namesake.id}
    assert directories(plane) == {"many-0", "many-1", "many-2"}
    assert [plane.partition("many", index).log.log_end_offset for index in range(3)] == [1] * 3
    assert not plane.logs.directories[0].offline


async def test_a_namesake_may_be_deleted_by_the_hundred_as_well(
    plane: DataPlane, removing: Removing
) -> None:
    removing.open()
    for _ in range(3):
        await created(plane)
        await plane.metadata.remove("many")
    await all_deleted(plane)
    assert directories(plane) == set()


async def test_what_a_stop_leaves_goes_with_the_next_start(
    plane: DataPlane, removing: Removing
) -> None:
    await created(plane)
    await plane.metadata.remove("many")
    await eventually(lambda: removing.begun)
    stopping = asyncio.create_task(plane.stop())
    await eventually(plane.replicas._registry._removal._stopping.is_set)
    removing.open()
    await stopping
    assert removing.begun == 1
    assert directories(plane)
    await plane.start()
    assert plane.logs.logs() == {}
    assert directories(plane) == set()
    plane.logs.empty_trash()
    assert not [*(plane.directory / "logs").glob("*-delete")]


async def test_what_cannot_be_removed_is_told_and_tried_again(
    plane: DataPlane, removing: Removing, caplog: pytest.LogCaptureFixture
) -> None:
    await created(plane)
    removing.error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files")
    removing.open()
    await plane.metadata.remove("many")
    await eventually(lambda: "logs of deleted topics could not be removed" in caplog.text)
    assert f"{MANY} logs of deleted topics" in caplog.text
    assert "too many open files" in caplog.text
    assert plane.metrics.gauges["deleting_partitions"][1]() == MANY
    await plane.replicas._registry.retry()
    removing.error = None
    await eventually(lambda: not plane.replicas._registry._removal._task)
    await plane.replicas._registry.retry()
    await all_deleted(plane)
    assert directories(plane) == set()


async def test_what_has_no_id_is_removed_before_a_namesake_could_claim_it(
    plane: DataPlane, removing: Removing
) -> None:
    """As after a crash while it was created, or by a Kafka of long ago."""
    await created(plane)
    log = plane.partition("many", 5).log
    log.topic_id = None
    await plane.metadata.remove("many")
    await plane.metadata.put(plane.metadata.new_topic("many", 6))
    assert plane.partition("many", 5).log.log_end_offset == 0
    assert plane.logs.get("many", 6) is not None


def rest_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing closed that nobody waits for."""
    monkeypatch.setattr("qbus.broker.partition.registry._REST_S", 30.0)
    monkeypatch.setattr("qbus.broker.partition.registry._REST_EACH_S", 1.0)


async def test_whoever_deletes_many_is_answered_before_they_are_closed(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody finds them any more, and who waits at one of them hears that it is gone."""
    old, other = await created(plane), await created(plane, "other")
    rest_long(monkeypatch)
    partition = plane.partition("many", 7)
    sent = plane.replicas._registry.traffic_by_topic()["many"].bytes_in
    await plane.metadata.remove("many")
    assert plane.replicas.partitions_of("many") == plane.replicas.partitions_of(old.id) == {}
    assert partition.role is Role.LEADER
    assert partition in {*plane.replicas._registry}, "and it hears of failures"
    assert plane.replicas._registry.traffic_by_topic()["many"].bytes_in == sent
    await plane.metadata.put(replace(other, config={"retention.ms": "1"}))
    assert partition.role is Role.LEADER, "what happens to others closes none"
    await plane.metadata.put(plane.metadata.new_topic("many", 3))
    assert partition.check() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [plane.partition("many", index).log.log_end_offset for index in range(3)] == [0] * 3
    await all_deleted(plane)
    assert aside(plane) == []


async def test_a_stop_does_not_wait_for_what_is_still_to_be_closed(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await created(plane)
    rest_long(monkeypatch)
    await plane.metadata.remove("many")
    plane.metadata.deleted.add(old.id)
    await plane.stop()
    await plane.start()
    await all_deleted(plane)
    assert directories(plane) == set()


async def test_a_stop_waits_for_what_is_being_written_down(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start may use the directories while this process goes on."""
    begun, go_on, written = threading.Event(), threading.Event(), threading.Event()
    note, close = plane.logs.note_deleted, plane.logs.close
    order: list[str] = []

    def note_late(logs: Any) -> None:
        begun.set()
        go_on.wait(0.5)
        note(logs)
        order.append("written down")
        written.set()

    def close_logs() -> None:
        order.append("closed")
        close()

    await created(plane)
    monkeypatch.setattr(plane.logs, "note_deleted", note_late)
    monkeypatch.setattr(plane.logs, "close", close_logs)
    await plane.metadata.remove("many")
    await eventually(begun.is_set)
    await plane.stop()
    go_on.set()
    await asyncio.to_thread(written.wait)
    assert order == ["written down", "closed"]
    await plane.start()


async def test_all_are_closed_and_removed_though_something_cannot_go_on(
    plane: DataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    await created(plane)
    partition = plane.partition("many", 7)
    plane.replicas.events.closed.append(fail)
    await plane.metadata.remove("many")
    await all_deleted(plane)
    plane.replicas.events.closed.remove(fail)
    assert "a defect" in caplog.text
    assert partition.check() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert directories(plane) == set()


async def test_what_was_deleted_while_the_broker_was_down_goes(plane: DataPlane) -> None:
    """As far as the feed still tells of it: a topic that is only missing may have been lost."""
    await created(plane, "deleted", 3)
    await created(plane, "lost", 3)
    await created(plane, "again", 3)
    await plane.stop()
    for name in ("deleted", "again"):
        plane.metadata.deleted.add(plane.metadata.topics[name].id)
    for name in ("deleted", "lost", "again"):
        await plane.metadata.remove(name)
    namesake = await plane.metadata.put(plane.metadata.new_topic("again", 2))
    await plane.start()
    await all_deleted(plane)
    plane.logs.empty_trash()
    assert directories(plane) == {"lost-0", "lost-1", "lost-2", "again-0", "again-1"}
    assert plane.partition("again").log.topic_id == namesake.id
    assert plane.partition("again").log.log_end_offset == 0


async def test_what_is_left_of_a_topic_whose_name_another_one_has_is_named(
    plane: DataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    """The feed tells no more that the topic was deleted, and its namesake has fewer partitions."""
    await created(plane, "again", 3)
    await plane.stop()
    await plane.metadata.remove("again")
    await plane.metadata.put(plane.metadata.new_topic("again", 2))
    await plane.start()
    assert "3 directories hold partitions of topics that do not exist" in caplog.text
    kept = {"again-2", *(path.name for path in aside(plane))}
    assert directories(plane) == {"again-0", "again-1", *kept}
    assert all(f"/{name}" in caplog.text for name in kept)
    assert len(kept) == 3


async def test_a_store_that_cannot_be_read_keeps_strays(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await created(plane, "deleted", 3)
    await plane.stop()
    await plane.metadata.remove("deleted")

    async def fail() -> set[bytes]:
        raise StoreUnavailable("no connection")

    monkeypatch.setattr(plane.metadata, "deleted_topics", fail)
    await plane.start()
    assert "which topics were deleted cannot be read: no connection" in caplog.text
    assert len(directories(plane)) == 3


def places_of(root: Path, pattern: str) -> list[Path]:
    """Where a partition is, in any data directory."""
    return [*root.glob(f"?/{pattern}")]


async def test_a_log_that_comes_back_with_its_directory_makes_way_for_the_topics(
    tmp_path: Path,
) -> None:
    """The topic was deleted, and created again, while the directory was offline."""
    plane = DataPlane(tmp_path, log_dirs=[str(tmp_path / "a"), str(tmp_path / "b")])
    await plane.start()
    former = await created(plane, "again", 1)
    await plane.stop()
    (place,) = places_of(tmp_path, "again-0")
    place.rename(tmp_path / "away")
    await plane.metadata.remove("again")
    topic = await plane.metadata.put(plane.metadata.new_topic("again"))
    await plane.start()
    (log,) = places_of(tmp_path, "again-0")
    await plane.stop()
    back = tmp_path / ("b" if log.parent.name == "a" else "a") / "again-0"
    (tmp_path / "away").rename(back)

    for is_known in (False, True):
        plane.metadata.deleted = {former.id} if is_known else set()
        await plane.start()
        partition = plane.partition("again")
        assert (partition.log.directory, partition.log.topic_id) == (str(log), topic.id)
        partition.append(batch(b"new"), 1)
        assert places_of(tmp_path, "again-0") == [log]
        (aside,) = places_of(tmp_path, "again-0.*-stray")
        assert aside.parent == back.parent
        plane.logs.empty_trash()
        assert places_of(tmp_path, "again-0.*-stray") == ([] if is_known else [aside])
        await plane.stop()


async def test_the_log_of_a_former_topic_is_used_after_all_once_it_says_no_more_whose_it_is(
    plane: DataPlane,
) -> None:
    """As the documentation has the operator do; with its id it makes way for the topic's log."""
    for says, end in ((True, 0), (False, 1)):
        await created(plane, "again", 1)
        await plane.stop()
        await plane.metadata.remove("again")
        await plane.metadata.put(plane.metadata.new_topic("again"))
        if not says:
            for name in ("partition.metadata", "log-manifest"):
                (plane.directory / "logs" / "again-0" / name).unlink()
        await plane.start()
        assert plane.partition("again").log.log_end_offset == end
        await plane.metadata.remove("again")


async def test_what_was_set_aside_of_a_topic_that_exists_is_not_called_superfluous(
    plane: DataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a start whose metadata were older than the log."""
    await created(plane, "again", 1)
    await plane.stop()
    aside = plane.directory / "logs" / "again-0.1-stray"
    (plane.directory / "logs" / "again-0").rename(aside)
    await plane.start()
    assert f"Theirs exist, so keep them: they may be the only copies: {aside}" in caplog.text
    assert "of topics that do not exist" not in caplog.text


@pytest.mark.parametrize("is_known", [False, True], ids=["perhaps", "known"])
async def test_the_only_log_of_a_former_topic_is_kept_unless_that_was_deleted(
    plane: DataPlane, is_known: bool
) -> None:
    """What says that another topic has the name now might be wrong, and the log the only copy."""
    former = await created(plane, "again", 1)
    await plane.stop()
    await plane.metadata.remove("again")
    topic = await plane.metadata.put(plane.metadata.new_topic("again"))
    plane.metadata.deleted = {former.id} if is_known else set()
    await plane.start()
    partition = plane.partition("again")
    assert (partition.log.topic_id, partition.log.log_end_offset) == (topic.id, 0)
    plane.logs.empty_trash()
    left = aside(plane)
    assert len(left) == (0 if is_known else 1)
    assert all((path / f"{0:020}.log").stat().st_size > 0 for path in left)


@pytest.mark.parametrize("is_known", [False, True], ids=["perhaps", "known"])
async def test_so_it_is_while_the_broker_runs(
    plane: DataPlane, caplog: pytest.LogCaptureFixture, is_known: bool
) -> None:
    former = plane.metadata.new_topic("again")
    plane.logs.create("again", 0, former.id, LogConfig())
    topic = await plane.metadata.put(plane.metadata.new_topic("again"))
    assert plane.partition("again").log.topic_id == topic.id
    (path,) = aside(plane)
    plane.metadata.deleted = {former.id} if is_known else set()
    await plane.replicas._registry.retry()
    plane.logs.empty_trash()
    assert aside(plane) == ([] if is_known else [path])
    assert ("stop the broker and delete them: " in caplog.text) is not is_known


async def test_a_store_that_cannot_be_read_is_asked_again_of_what_was_set_aside(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = plane.metadata.new_topic("again")
    plane.metadata.deleted = {former.id}
    plane.logs.create("again", 0, former.id, LogConfig())

    async def fail() -> set[bytes]:
        raise StoreUnavailable("no connection")

    with monkeypatch.context() as patch:
        patch.setattr(plane.metadata, "deleted_topics", fail)
        await plane.metadata.put(plane.metadata.new_topic("again"))
        await plane.replicas._registry.retry()
        plane.logs.empty_trash()
        assert len(aside(plane)) == 1
    await plane.replicas._registry.retry()
    plane.logs.empty_trash()
    assert aside(plane) == []


async def test_a_log_that_cannot_be_set_aside_keeps_the_topic_from_being_used(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = plane.metadata.new_topic("again")
    plane.logs.create("again", 0, former.id, LogConfig())

    def fail(*_: object) -> None:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(plane.logs.directories[0], "set_aside", fail)
        topic = await plane.metadata.put(plane.metadata.new_topic("again"))
        assert plane.replicas.why_missing("again", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    for _ in range(2):  # it is opened again, and closed again
        await plane.replicas._registry.retry()
    assert plane.partition("again").log.topic_id == topic.id
    assert len(aside(plane)) == 1
