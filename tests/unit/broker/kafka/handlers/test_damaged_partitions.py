"""Each state in which a log is damaged, and what every API says of the partition then.

Either all that is not damaged is served, or each request is refused with KAFKA_STORAGE_ERROR at
once: a partition never looks empty.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.log.checkpoints import RECOVERY_POINTS
from qbus.broker.log.names import TopicPartition
from qbus.broker.partition.partition import Partition, Role
from qbus.errors import ErrorCode
from qbus.metadata.znodes import NO_LEADER
from qbus.wire import ApiKey
from qbus.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from qbus.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from qbus.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from qbus.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from qbus.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.data_plane import NODE, DataPlane, values
from tests.support.following import OTHER, THIRD, put, state
from tests.support.logs import NOW_MS, batch
from tests.support.waiting import eventually

from .test_delete_records import delete

COUNT, EACH = 9, 3
SIZE = len(batch(b"0" * 600))
FOUND = ErrorCode.CORRUPT_MESSAGE
REFUSED = ErrorCode.KAFKA_STORAGE_ERROR


def flip(directory: Path, *offsets: int, at: int = 100) -> None:
    for offset in offsets:
        path = directory / f"{offset // EACH * EACH:020d}.log"
        data = bytearray(path.read_bytes())
        data[offset % EACH * SIZE + at] ^= 0xFF
        path.write_bytes(data)


def write(directory: Path, base: int, content: bytes) -> None:
    (directory / f"{base:020d}.log").write_bytes(content)


def lose(directory: Path, *bases: int) -> None:
    for base in bases:
        (directory / f"{base:020d}.log").unlink()


def overlap(directory: Path) -> None:
    """The second segment goes on into the third's offsets."""
    third = (directory / f"{2 * EACH:020d}.log").read_bytes()
    with (directory / f"{EACH:020d}.log").open("ab") as file:
        file.write(third[:SIZE])


@dataclass(frozen=True)
class Damage:
    """What happens to the files; the offsets that are lost by it, None: the log is refused.

    ``is_below``: the recovery point was at the end of the log, else it was at its start.
    """

    inflict: Callable[[Path], object]
    lost: Iterable[int] | None
    is_below: bool = True


STATES = {
    "first above": Damage(lambda d: flip(d, 0), [0], is_below=False),
    "middle above": Damage(lambda d: flip(d, 4), [4], is_below=False),
    "length above": Damage(lambda d: flip(d, 4, at=11), [4], is_below=False),
    "end of a segment above": Damage(lambda d: flip(d, 5), [5], is_below=False),
    "two above": Damage(lambda d: flip(d, 1, 7), [1, 7], is_below=False),
    "first below": Damage(lambda d: flip(d, 0), [0]),
    "middle below": Damage(lambda d: flip(d, 4), [4]),
    "length below": Damage(lambda d: flip(d, 4, at=11), [4]),
    "last below": Damage(lambda d: flip(d, 8), [8]),
    "two below": Damage(lambda d: flip(d, 1, 7), [1, 7]),
    "adjacent below": Damage(lambda d: flip(d, 3, 4), [3, 4]),
    "segment of zeros": Damage(lambda d: write(d, 3, bytes(3 * SIZE)), [3, 4, 5]),
    "cut segment": Damage(lambda d: write(d, 3, (d / f"{3:020d}.log").read_bytes()[:SIZE]), [4, 5]),
    "missing segment": Damage(lambda d: lose(d, 3), [3, 4, 5]),
    "missing last segment": Damage(lambda d: lose(d, 6), [6, 7, 8]),
    "no segment": Damage(lambda d: lose(d, 0, 3, 6), None),
    "overlapping segments": Damage(overlap, None, is_below=False),
}
SERVED = [name for name, damage in STATES.items() if damage.lost is not None]
UNSERVED = [name for name, damage in STATES.items() if damage.lost is None]


async def spoiled(plane: DataPlane, damage: Damage, **config: Any) -> Partition:
    """A topic of nine batches in three segments, after a crash in which it was damaged."""
    partition = await plane.create("orders", **config)
    await fill(partition)
    await crash(plane, damage)
    return plane.partition("orders")


async def fill(partition: Partition) -> None:
    for number in range(COUNT):
        if number and number % EACH == 0:
            partition.log.roll()
        partition.append(batch(b"%d" % number * 600, timestamp=NOW_MS + number), 1)
    partition.log.flush()


async def crash(plane: DataPlane, damage: Damage) -> None:
    await plane.stop()
    logs = plane.directory / "logs"
    (logs / ".kafka_cleanshutdown").unlink()
    checkpoint = logs / RECOVERY_POINTS
    if not damage.is_below:
        checkpoint.unlink()
    for name in (logs / "orders-0").glob("*index"):
        name.unlink()
    damage.inflict(logs / "orders-0")
    await plane.start()
    partition = plane.partition("orders")
    if partition.is_leader:
        await eventually(lambda: partition.high_watermark == partition.log.log_end_offset)


async def fetch(plane: DataPlane, offset: int, max_bytes: int = 1) -> Any:
    wanted = FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="orders", partitions=[wanted])],
    )
    response = await plane.call(ApiKey.FETCH, 12, request)
    return response.responses[0].partitions[0]


async def place(plane: DataPlane, timestamp: int) -> Any:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
    topics = [ListOffsetsTopic(name="orders", partitions=[wanted])]
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    response = await plane.call(ApiKey.LIST_OFFSETS, 9, request)
    return response.topics[0].partitions[0]


async def produce(plane: DataPlane) -> Any:
    data = PartitionProduceData(index=0, records=batch(b"new", timestamp=NOW_MS))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name="orders", partition_data=[data])],
    )
    response = await plane.call(ApiKey.PRODUCE, 9, request)
    return response.responses[0].partition_responses[0]


async def end_of_epoch(plane: DataPlane) -> Any:
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topics = [OffsetForLeaderTopic(topic="orders", partitions=[wanted])]
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
    response = await plane.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request)
    return response.topics[0].partitions[0]


async def producers(plane: DataPlane) -> Any:
    request = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=[0])])
    response = await plane.call(ApiKey.DESCRIBE_PRODUCERS, 0, request)
    return response.topics[0].partitions[0]


async def log_dir(plane: DataPlane) -> Any:
    response = await plane.call(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None))
    return response.results[0].topics[0].partitions[0]


APIS: dict[str, Callable[[DataPlane], Any]] = {
    "fetch at the start": lambda plane: fetch(plane, 0),
    "fetch in the middle": lambda plane: fetch(plane, 4),
    "fetch at the end": lambda plane: fetch(plane, COUNT),
    "earliest": lambda plane: place(plane, -2),
    "latest": lambda plane: place(plane, -1),
    "max timestamp": lambda plane: place(plane, -3),
    "timestamp": lambda plane: place(plane, NOW_MS),
    "produce": produce,
    "end of an epoch": end_of_epoch,
    "producers": producers,
    "delete records": lambda plane: delete(plane, 1),
}


@pytest.mark.parametrize("name", SERVED)
async def test_all_around_the_damage_is_served(plane: DataPlane, name: str) -> None:
    damage = STATES[name]
    partition = await spoiled(plane, damage)
    lost = set(damage.lost or ())
    readable = [offset for offset in range(COUNT) if offset not in lost]

    assert partition.role is Role.LEADER
    for offset in range(COUNT):
        answer = await fetch(plane, offset)
        expected = FOUND if offset in lost else ErrorCode.NONE
        assert (offset, ErrorCode(answer.error_code)) == (offset, expected)
        if offset not in lost:
            assert values(answer.records) == [b"%d" % offset * 600]
    assert [one.offset for one in [await place(plane, -2), await place(plane, -1)]] == [0, COUNT]
    assert (await place(plane, -3)).offset == readable[-1]
    for offset in range(COUNT):
        behind = [one for one in readable if one >= offset]
        found = await place(plane, NOW_MS + offset)
        assert (found.error_code, found.offset) == (0, behind[0] if behind else -1)
    assert (await end_of_epoch(plane)).end_offset == COUNT
    assert (await producers(plane)).error_code == 0

    told = await log_dir(plane)
    named = [one for bad in told.damage for one in range(bad.first_offset, bad.last_offset + 1)]
    assert named == sorted(lost)
    assert all("orders-0/" in bad.path and bad.since_ms and bad.problem for bad in told.damage)
    gauge = dict(plane.metrics.labelled["damaged_offsets"][2]())
    assert sum(gauge.values()) == len(lost)

    appended = await produce(plane)
    assert (appended.error_code, appended.base_offset) == (0, COUNT)
    assert values((await fetch(plane, COUNT)).records) == [b"new"]
    assert (await delete(plane, COUNT)).low_watermark == COUNT
    assert (await log_dir(plane)).damage == [], "what was deleted is no damage any more"


@pytest.mark.parametrize("name", UNSERVED)
@pytest.mark.parametrize("api", APIS)
async def test_a_log_that_cannot_be_used_refuses_each_request(
    plane: DataPlane, name: str, api: str
) -> None:
    partition = await spoiled(plane, STATES[name])
    assert partition.is_lost
    assert TopicPartition("orders", 0) in plane.replicas.offline(), "so Metadata names it"
    answer = await APIS[api](plane)
    assert ErrorCode(answer.error_code) is REFUSED
    (bad,) = (await log_dir(plane)).damage
    assert (bad.last_offset, bool(bad.problem)) == (-1, True)


@pytest.mark.parametrize("name", ["middle above", "length above", "last below"])
@pytest.mark.parametrize("api", APIS)
async def test_a_replica_does_not_lead_while_another_one_may_have_everything(
    plane: DataPlane, name: str, api: str
) -> None:
    await put(plane, state(), qbus_durability="memory")
    await fill(plane.partition("orders"))
    await crash(plane, STATES[name])
    assert ErrorCode((await APIS[api](plane)).error_code) is REFUSED
    assert not plane.partition("orders").is_leader
    await plane.replicas.disqualification.check()
    ((_, written, _),) = plane.store.states()
    assert (written.leader, written.isr) == (NO_LEADER, (OTHER, THIRD))


async def test_the_last_replica_in_sync_serves_what_it_has(plane: DataPlane) -> None:
    """The others are out of sync: they may lack what was acknowledged."""
    await put(plane, state((NODE,)), qbus_durability="memory")
    await fill(plane.partition("orders"))
    await crash(plane, STATES["middle above"])
    assert ErrorCode((await fetch(plane, 4)).error_code) is FOUND
    assert values((await fetch(plane, 5)).records) == [b"5" * 600]
    await plane.replicas.disqualification.check()
    assert plane.store.states() == [], "it keeps its claims, for there is no better replica"


async def test_a_replica_that_was_refused_serves_once_no_other_one_is_in_sync(
    plane: DataPlane,
) -> None:
    await put(plane, state(), qbus_durability="memory")
    await fill(plane.partition("orders"))
    await crash(plane, STATES["middle above"])
    assert ErrorCode((await fetch(plane, 5)).error_code) is REFUSED
    await put(plane, state((NODE,), leader_epoch=2, version=1))
    assert values((await fetch(plane, 5)).records) == [b"5" * 600]


@pytest.mark.parametrize(
    "config", [{"qbus_delay_enable": "true"}, {"cleanup_policy": "compact"}], ids=str
)
async def test_topics_of_other_kinds_are_served_likewise(
    plane: DataPlane, config: dict[str, str]
) -> None:
    if "cleanup_policy" in config:
        partition = await plane.create("orders")
        await fill(partition)
        await crash(plane, STATES["two above"])
        known = plane.metadata.topics["orders"]
        await put(plane, *known.partitions, **config)
    else:
        await spoiled(plane, STATES["two above"], **config)
    codes = [ErrorCode((await fetch(plane, offset)).error_code) for offset in range(COUNT)]
    assert [offset for offset, code in enumerate(codes) if code] == [1, 7]
    assert (await produce(plane)).error_code in {0, ErrorCode.INVALID_RECORD}


async def test_damage_is_known_after_a_clean_restart(plane: DataPlane) -> None:
    await spoiled(plane, STATES["length above"])
    since = (await log_dir(plane)).damage[0].since_ms
    plane.clock.advance(60)
    await plane.restart()
    (bad,) = (await log_dir(plane)).damage
    assert (bad.first_offset, bad.last_offset, bad.since_ms) == (4, 4, since)
    assert ErrorCode((await fetch(plane, 4)).error_code) is FOUND
    assert values((await fetch(plane, 5)).records) == [b"5" * 600]
