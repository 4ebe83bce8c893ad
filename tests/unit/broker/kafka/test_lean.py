"""The lean way and the general one: the same answers to the same requests, byte for byte."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.authorization import AccessControl, AclAuthorizer
from qbus.broker.kafka import dispatch
from qbus.broker.kafka.dispatch import Dispatcher, PendingReply
from qbus.broker.kafka.lean import LEAN
from qbus.broker.net.connection import CloseConnection
from qbus.broker.net.peer import Peer
from qbus.broker.partition.partition import Partition
from qbus.config import ListenerInfo
from qbus.delay import CANCEL, DELAY, DELIVER_AT, RESCHEDULE
from qbus.errors import ErrorCode
from qbus.names import INTERNAL_TOPICS
from qbus.records import Compression, build_batch, read_header
from qbus.records.header import write_header
from qbus.security.acls import AclIndex, Entry, Operation, Pattern, Permission, ResourceType
from qbus.wire import ApiKey, Struct, decode_response, encode_request, lean
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from qbus.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.data_plane import DataPlane
from tests.support.logs import NOW_MS, batch, transactional
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(not lean.IS_BUILT, reason="nothing was compiled here")

_BY_ID = 13


class Way:
    """A broker's data plane, and what answers requests to it."""

    def __init__(self, plane: DataPlane) -> None:
        plane.broker.metrics = plane.metrics
        self.plane = plane
        self.peer = Peer(1, "127.0.0.1", ListenerInfo.plaintext("127.0.0.1", 9092))
        self.dispatcher = Dispatcher(plane.broker)

    def begin(self, frame: bytes) -> Any:
        """What the dispatcher returns, or why it closes the connection."""
        try:
            return self.dispatcher(self.peer, memoryview(bytearray(frame)))
        except CloseConnection as error:
            return str(error)

    async def ask(self, frame: bytes) -> bytes | str:
        """The whole answer."""
        return joined(await settled(self.begin(frame)))


async def settled(answer: Any) -> Any:
    if not isinstance(answer, PendingReply):
        return answer
    done = asyncio.Event()
    answer.on_done(done.set)
    await asyncio.wait_for(done.wait(), 10)
    try:
        return answer.result()
    except CloseConnection as error:
        return str(error)


def joined(answer: Any) -> bytes | str:
    if answer is None or isinstance(answer, str):
        return answer or ""
    sent = bytearray()
    for part in answer:
        if isinstance(part, bytes | bytearray | memoryview):
            sent += part
        else:
            sent += part.read()
            part.close()
    return bytes(sent)


async def ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> list[Way]:
    made = []
    for name, table in (("lean", LEAN), ("general", {})):
        plane = DataPlane(tmp_path / name, **settings)
        await plane.start()
        with monkeypatch.context() as patch:
            patch.setattr(dispatch, "LEAN", table)
            made.append(Way(plane))
    return made


@pytest.fixture(params=["memory", "fsync"])
async def both(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[Way]]:
    made = await ways(tmp_path, monkeypatch, durability=request.param)
    for way in made:
        await way.plane.create("plain", 2)
        await way.plane.create("stamped", 1, message_timestamp_type="LogAppendTime")
        await way.plane.create("small", 1, max_message_bytes=200)
        await way.plane.create("zipped", 1, compression_type="gzip")
        await way.plane.create("mirror", 1, qbus_mirror_source="beijing")
        await way.plane.create("keyed", 1, cleanup_policy="compact")
        await way.plane.create("later", 1, qbus_delay_enable=True)
        await way.plane.create("later-zipped", 1, qbus_delay_enable=True, compression_type="zstd")
    yield made
    for way in made:
        await way.plane.stop()


def framed(key: ApiKey, version: int, request: Struct) -> bytes:
    return b"".join(map(bytes, encode_request(key, version, 7, "test", request)))[4:]


def produce_frame(
    way: Way,
    records: Any,
    topic: str = "plain",
    index: int = 0,
    version: int = 12,
    acks: int = -1,
    timeout_ms: int = 10_000,
) -> bytes:
    data = PartitionProduceData(index=index, records=bytes(records))
    naming: dict[str, Any] = {"name": topic}
    if version >= _BY_ID:
        known = way.plane.metadata.topics.get(topic)
        naming = {"topic_id": known.id if known else b"unknown-topic-id"}
    topics = [TopicProduceData(partition_data=[data], **naming)]
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)
    return framed(ApiKey.PRODUCE, version, request)


def fetch_frame(
    way: Way,
    offset: int,
    topic: str = "plain",
    index: int = 0,
    version: int = 12,
    most: int = 1 << 20,
    **fields: Any,
) -> bytes:
    epoch = fields.pop("leader_epoch", -1)
    wanted = FetchPartition(
        partition=index,
        fetch_offset=offset,
        partition_max_bytes=most,
        current_leader_epoch=epoch,
    )
    naming: dict[str, Any] = {"topic": topic}
    if version >= _BY_ID:
        known = way.plane.metadata.topics.get(topic)
        naming = {"topic_id": known.id if known else b"unknown-topic-id"}
    request = FetchRequest(
        topics=[FetchTopic(partitions=[wanted], **naming)], session_epoch=0, **fields
    )
    return framed(ApiKey.FETCH, version, request)


TOPICS = (
    *("plain", "plain", "plain", "stamped", "small", "zipped", "mirror"),
    *("keyed", "later", "later", "later-zipped", "unknown"),
)
HEADERS: tuple[tuple[tuple[str, bytes], ...], ...] = (
    *((),) * 6,
    ((DELAY, b"1h"),),
    ((DELAY, b"0"),),
    ((DELIVER_AT, b"1"),),
    ((DELAY, b"soon"),),
    ((CANCEL, b"0"),),
    ((CANCEL, b"key"),),
    ((RESCHEDULE, b"1"), (DELAY, b"2h")),
    (("other", b""),),
)


def random_batch(chance: random.Random) -> bytearray:
    keys = chance.choice([(None, b"k"), (b"k", b"l"), (b"k", b"l")])
    records = [
        (
            chance.choice(keys),
            chance.randbytes(chance.choice([0, 1, 40, 300])),
            chance.choice(HEADERS),
            NOW_MS,
        )
        for _ in range(chance.randint(1, 4))
    ]
    fields: dict[str, Any] = {"compression": chance.choice([*Compression, Compression.NONE])}
    if chance.random() < 0.4:
        fields |= {
            "producer_id": chance.randint(1, 3),
            "producer_epoch": chance.choice([0, 0, 0, 1]),
            "base_sequence": chance.choice([0, 0, 1, 2, 4, 9]),
        }
    made = bytearray(build_batch(records, **fields))
    kind = chance.random()
    if kind < 0.05:
        made[chance.randrange(len(made))] ^= 1 << chance.randrange(8)
    elif kind < 0.08:
        del made[chance.randrange(len(made)) :]
    elif kind < 0.11:
        return made + made
    elif kind < 0.16:
        field = chance.choice(["attributes", "records_count", "max_timestamp", "producer_id"])
        value = chance.choice([-1, 0, 7, 8, 16, 32, 2**40])
        limit = {"attributes": 2**15 - 1, "records_count": 2**31 - 1}.get(field, 2**62)
        header = read_header(made)._replace(**{field: min(value, limit)})
        write_header(made, header)
    return made


@pytest.mark.parametrize("seed", range(6))
async def test_random_requests_are_answered_alike(both: list[Way], seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        topic, index = chance.choice(TOPICS), chance.choice([0, 0, 0, 1, 5])
        if chance.random() < 0.15:
            change_transaction(both, chance.randint(11, 13), chance.random())
            for way in both:
                await eventually(partial(is_visible, way.plane))
        version = chance.choice([9, 10, 12, 13])
        if chance.random() < 0.6:
            sent = random_batch(chance)
            acks = chance.choice([-1, -1, 1, 1, 0, 2])
            frames = [produce_frame(way, sent, topic, index, version, acks) for way in both]
        else:
            fields: dict[str, Any] = {
                "min_bytes": chance.choice([0, 1, 1 << 20]),
                "max_bytes": chance.choice([0, 100, 1 << 20]),
                "isolation_level": chance.randrange(2),
                "leader_epoch": chance.choice([-1, -1, 0, 3]),
                "most": chance.choice([0, 1, 150, 1 << 20]),
            }
            offset = chance.choice([-1, 0, 1, 2, 5, 20, 10_000])
            version = chance.choice([12, 13, 15, 17])
            frames = [fetch_frame(way, offset, topic, index, version, **fields) for way in both]
        found = [await way.ask(frame) for way, frame in zip(both, frames, strict=True)]
        assert found[0] == found[1]
        for way in both:  # what is visible depends on the disks otherwise
            await eventually(partial(is_visible, way.plane))
    lean, general = (logs_of(way.plane) for way in both)
    assert lean == general
    written = {name.rpartition("-")[0] for name, log in lean.items() if log}
    assert written >= set(TOPICS) - {"unknown", "mirror", "small"}
    for way in both:
        assert way.plane.partition("later").log.has_hidden, "no record was delayed"


def change_transaction(both: list[Way], producer_id: int, chance: float) -> None:
    """Write to a transaction of a producer, or end it."""
    for way in both:
        partition = way.plane.partition("plain")
        if chance < 0.5:
            partition.end_transaction(producer_id, 0, 0, committed=chance < 0.25)
            continue
        known = {one.producer_id: one.last_sequence + 1 for one in partition.log.producers}
        sequence = known.get(producer_id, 0)
        asked = partition.begin_verification(producer_id, 0, sequence)
        sent = transactional(b"t", producer_id=producer_id, sequence=sequence)
        partition.append(sent, -1, asked)


def logs_of(plane: DataPlane) -> dict[str, bytes]:
    """The bytes of each partition's log."""
    return {
        Path(one.log.directory).name: b"".join(
            path.read_bytes() for path in sorted(Path(one.log.directory).glob("*.log"))
        )
        for one in partitions_of(plane)
    }


def partitions_of(plane: DataPlane) -> Sequence[Partition]:
    return [
        plane.partition(name, index)
        for name, topic in plane.metadata.topics.items()
        for index in range(len(topic.partitions))
    ]


def is_visible(plane: DataPlane) -> bool:
    """Whether all that is written can be read."""
    return all(one.high_watermark == one.log.log_end_offset for one in partitions_of(plane))


def codes(answer: Any, version: int = 12) -> list[int]:
    _, response = decode_response(ApiKey.PRODUCE, version, memoryview(answer)[4:])
    return [data.error_code for topic in response.responses for data in topic.partition_responses]


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
@pytest.mark.parametrize("version", [12, _BY_ID])
async def test_no_client_writes_to_an_internal_topic(
    both: list[Way], topic: str, version: int
) -> None:
    """Though somebody changed its ``cleanup.policy``, without which it looks like any other."""
    for way in both:
        partition = await way.plane.create(topic, cleanup_policy="delete")
        frame = produce_frame(way, batch(b"a"), topic, version=version)
        assert codes(await way.ask(frame), version) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert partition.log.log_end_offset == 0


async def test_when_the_time_is_up_the_outcome_is_unknown(both: list[Way]) -> None:
    for way in both:
        way.plane.disk.hold_syncs()
    found = [await way.ask(produce_frame(way, batch(b"a"), timeout_ms=0)) for way in both]
    for way in both:
        way.plane.disk.release_syncs()
    assert found[0] == found[1]
    durable = both[0].plane.partition("plain").durable
    assert codes(found[0]) == [ErrorCode.REQUEST_TIMED_OUT if durable else ErrorCode.NONE]


async def test_a_leader_that_steps_down_leaves_the_outcome_open(both: list[Way]) -> None:
    for way in both:
        way.plane.disk.hold_syncs()
    begun = [way.begin(produce_frame(way, batch(b"a"))) for way in both]
    for way in both:
        way.plane.partition("plain").follow(2, 1)
        way.plane.disk.release_syncs()
    found = [joined(await settled(one)) for one in begun]
    assert found[0] == found[1]


async def test_a_client_that_is_gone_waits_no_more(both: list[Way]) -> None:
    for way in both:
        way.plane.disk.hold_syncs()
        begun = way.begin(produce_frame(way, batch(b"a")))
        if isinstance(begun, PendingReply):
            begun.cancel()
            with pytest.raises(CloseConnection):
                begun.result()
        assert len(way.plane.replicas.purgatory.produces) == 0
        way.plane.disk.release_syncs()


async def test_requests_are_counted_alike(both: list[Way]) -> None:
    for way in both:
        await way.ask(produce_frame(way, batch(b"a")))
        await way.ask(fetch_frame(way, 0))
    counts = [way.plane.metrics.requests.counts for way in both]
    assert [sum(counts[0][key]) for key in (0, 1)] == [1, 1]
    assert [sum(counts[1][key]) for key in (0, 1)] == [1, 1]
    moved = [
        (p.bytes_in, p.bytes_out, p.messages_in) for p in (w.plane.partition("plain") for w in both)
    ]
    assert moved[0] == moved[1]


@pytest.mark.sources
async def test_a_defect_is_answered_and_counted_alike(
    both: list[Way], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Partition, "append", broken)
    monkeypatch.setattr(Partition, "check", broken)
    for frame_of in (lambda way: produce_frame(way, batch(b"a")), lambda way: fetch_frame(way, 0)):
        found = [await way.ask(frame_of(way)) for way in both]
        assert found[0] == found[1]
    assert [way.plane.metrics.requests.failures for way in both] == [2, 2]


async def test_an_answer_that_fails_while_it_waits_closes_the_connection(both: list[Way]) -> None:
    for way in both:
        way.plane.disk.hold_syncs()
        begun = way.begin(produce_frame(way, batch(b"a")))
        if isinstance(begun, PendingReply):
            (waiting,) = way.plane.partition("plain")._acks._waiting
            waiting[1].fail(ZeroDivisionError("a defect"))  # type: ignore[attr-defined]
            with pytest.raises(CloseConnection, match=r"a defect|PRODUCE failed"):
                begun.result()
            assert way.plane.metrics.requests.failures == 1
        way.plane.disk.release_syncs()


def fetch_codes(answer: Any, version: int) -> list[int]:
    _, response = decode_response(ApiKey.FETCH, version, memoryview(answer)[4:])
    return [data.error_code for topic in response.responses for data in topic.partitions]


def restricted(way: Way) -> AclIndex:
    """Have access rules, of which there are none yet, restrict what clients may do."""
    rules = AclIndex()
    way.dispatcher = Dispatcher(way.plane.broker, AccessControl(AclAuthorizer(rules)))
    return rules


def allow(rules: AclIndex, operation: Operation, *, denied: bool = False) -> None:
    permission = Permission.DENY if denied else Permission.ALLOW
    entry = Entry("User:*", "*", operation, permission)
    rules.put(Pattern(ResourceType.TOPIC, "plain"), [entry])


async def test_rules_hold_whichever_way_a_request_goes(both: list[Way]) -> None:
    for version in (12, 13):
        answers = []
        for way in both:
            rules = restricted(way)
            found = [
                codes(await way.ask(produce_frame(way, batch(b"a"), version=version)), version)
            ]
            allow(rules, Operation.WRITE)
            found += [
                codes(await way.ask(produce_frame(way, batch(b"b"), version=version)), version)
            ]
            await eventually(partial(is_visible, way.plane))
            found += [fetch_codes(await way.ask(fetch_frame(way, 0, version=version)), version)]
            allow(rules, Operation.READ)
            found += [fetch_codes(await way.ask(fetch_frame(way, 0, version=version)), version)]
            found += [
                codes(await way.ask(produce_frame(way, batch(b"c"), version=version)), version)
            ]
            answers.append(found)
        denied, none = [ErrorCode.TOPIC_AUTHORIZATION_FAILED], [ErrorCode.NONE]
        assert answers == [[denied, none, denied, none, denied]] * 2


class Noting:
    """An audit log that is to have every request, or none."""

    def __init__(self, *, samples: bool) -> None:
        self.operations: list[Operation] = []
        self._samples = samples

    def is_due(self) -> bool:
        return self._samples

    samples = is_due

    def authorization(self, _caller: object, operation: Operation, *_: object) -> None:
        self.operations.append(operation)


@pytest.mark.parametrize("samples", [False, True])
async def test_requests_are_recorded_whichever_way_they_go(both: list[Way], samples: bool) -> None:
    for way in both:
        audit: Any = Noting(samples=samples)
        rules = AclIndex()
        allow(rules, Operation.ALL)
        access = AccessControl(AclAuthorizer(rules), audit)
        way.dispatcher = Dispatcher(way.plane.broker, access)
        assert codes(await way.ask(produce_frame(way, batch(b"a")))) == [ErrorCode.NONE]
        await eventually(partial(is_visible, way.plane))
        assert fetch_codes(await way.ask(fetch_frame(way, 0)), 12) == [ErrorCode.NONE]
        assert audit.operations == ([Operation.WRITE, Operation.READ] if samples else [])


async def test_a_grant_is_withdrawn_with_its_rule(both: list[Way]) -> None:
    for way in both:
        rules = restricted(way)
        allow(rules, Operation.WRITE)
        assert codes(await way.ask(produce_frame(way, batch(b"a")))) == [ErrorCode.NONE]
        allow(rules, Operation.WRITE, denied=True)
        denied = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert codes(await way.ask(produce_frame(way, batch(b"a")))) == denied
