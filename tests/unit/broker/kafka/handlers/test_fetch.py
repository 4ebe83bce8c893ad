"""Fetch: what is read, how much of it, when it is answered, and which error each fault gets."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.authorization import AccessControl, AclAuthorizer
from qbus.broker.kafka.fetch_reader import FetchAnswer
from qbus.broker.kafka.handlers import fetch as fetch_handler
from qbus.broker.metadata.image import BrokerInfo, PartitionInfo, Topic
from qbus.broker.partition.partition import Partition
from qbus.errors import ErrorCode
from qbus.records import build_batch, iter_batches
from qbus.records.control import ControlType, control_batch, encode_int64
from qbus.security.acls import (
    EVERYONE,
    AclIndex,
    Entry,
    Operation,
    Pattern,
    Permission,
    ResourceType,
)
from qbus.wire import API, ApiKey
from qbus.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from tests.support.data_plane import DataPlane, over_the_wire, values
from tests.support.logs import NOW_MS, batch, transactional
from tests.support.waiting import eventually

VERSIONS = range(API[ApiKey.FETCH].min_version, API[ApiKey.FETCH].max_version + 1)
LATEST = VERSIONS[-1]
_BY_ID = 13
MIB = 1 << 20


def request(
    plane: DataPlane,
    *partitions: FetchPartition,
    version: int = LATEST,
    topic: str = "orders",
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 * MIB,
    **fields: Any,
) -> FetchRequest:
    known = plane.metadata.topics.get(topic)
    naming: dict[str, Any] = {"topic": topic}
    if version >= _BY_ID:
        naming = {"topic_id": known.id if known else b"unknown-topic-id"}
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(partitions=list(partitions), **naming)],
        **fields,
    )


def at(offset: int, partition: int = 0, limit: int = MIB, epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=limit,
        current_leader_epoch=epoch,
    )


async def fetch(
    plane: DataPlane, *partitions: FetchPartition, version: int = LATEST, **options: Any
) -> list[Any]:
    """The answers for one topic's partitions."""
    sent = request(plane, *partitions, version=version, **options)
    response: FetchResponse = await plane.call(ApiKey.FETCH, version, sent)
    assert response.error_code == 0
    answers: list[Any] = response.responses[0].partitions
    return answers


def poll(plane: DataPlane, *partitions: FetchPartition, **options: Any) -> FetchAnswer:
    """A long poll that is under way."""
    outcome = plane.begin(ApiKey.FETCH, LATEST, request(plane, *partitions, **options))
    assert isinstance(outcome, FetchAnswer)
    assert not outcome.done()
    return outcome


async def answered(future: FetchAnswer) -> list[Any]:
    response = over_the_wire(ApiKey.FETCH, LATEST, await future)
    answers: list[Any] = response.responses[0].partitions
    return answers


@pytest.fixture
async def orders(plane: DataPlane) -> Partition:
    """A topic of two partitions in memory durability."""
    return await plane.create("orders", 2, qbus_durability="memory")


def append(partition: Partition, *records: bytes) -> int:
    """Append one batch; its size."""
    data = batch(*records)
    partition.append(data, 1)
    return len(data)


class TestReading:
    @pytest.mark.parametrize("version", VERSIONS)
    async def test_every_version_reads_from_an_offset_to_the_end(
        self, plane: DataPlane, orders: Partition, version: int
    ) -> None:
        append(orders, b"a", b"b")
        append(orders, b"c")
        (data,) = await fetch(plane, at(0), version=version)
        assert values(data.records) == [b"a", b"b", b"c"]
        assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 3, 3)
        if version >= 5:
            assert data.log_start_offset == 0
        assert data.aborted_transactions is None
        assert data.preferred_read_replica == -1

    async def test_an_offset_inside_a_batch_gets_the_whole_batch(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        append(orders, b"a", b"b", b"c")
        append(orders, b"d")
        (data,) = await fetch(plane, at(1))
        assert values(data.records) == [b"a", b"b", b"c", b"d"]

    async def test_no_records_have_length_0(self, plane: DataPlane, orders: Partition) -> None:
        (data,) = await fetch(plane, at(0))
        assert data.records is not None
        assert len(data.records) == 0

    async def test_what_is_not_acknowledged_is_not_read(self, plane: DataPlane) -> None:
        partition = await plane.create("safe")
        plane.disk.hold_syncs()
        partition.append(batch(b"a"), 1)
        (data,) = await fetch(plane, at(0), topic="safe")
        assert (len(data.records), data.high_watermark, data.error_code) == (0, 0, 0)
        (data,) = await fetch(plane, at(1), topic="safe")  # ahead of what is visible: no error
        assert (len(data.records), data.error_code) == (0, 0)
        plane.disk.release_syncs()
        await eventually(lambda: partition.high_watermark == 1)
        (data,) = await fetch(plane, at(0), topic="safe")
        assert values(data.records) == [b"a"]

    async def test_read_committed_lists_no_aborted_transactions(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        append(orders, b"a")
        (data,) = await fetch(plane, at(0), isolation_level=1)
        assert data.aborted_transactions == []
        assert values(data.records) == [b"a"]

    async def test_what_is_on_disk_is_checked_before_it_is_sent(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        append(orders, b"a", b"b")
        await plane.restart()
        (data,) = await fetch(plane, at(0))
        assert values(data.records) == [b"a", b"b"]

    async def test_a_flipped_bit_is_never_sent(
        self, plane: DataPlane, orders: Partition, tmp_path: Path
    ) -> None:
        size = append(orders, b"a" * 50)
        append(orders, b"b" * 50)
        await plane.stop()
        segment = tmp_path / "logs" / "orders-0" / f"{0:020}.log"
        damaged = bytearray(segment.read_bytes())
        damaged[size + 80] ^= 1
        segment.write_bytes(damaged)
        await plane.start()
        (data,) = await fetch(plane, at(0))
        assert values(data.records) == [b"a" * 50]
        (data,) = await fetch(plane, at(1))
        assert ErrorCode(data.error_code) is ErrorCode.CORRUPT_MESSAGE
        assert len(data.records) == 0
        gauges = plane.metrics.gauges
        assert gauges["corruptions"][1]() >= 1

    async def test_a_read_gone_cold_closes_what_nobody_takes(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        append(orders, b"a")
        await plane.restart()
        future = plane.begin(ApiKey.FETCH, LATEST, request(plane, at(0)))
        future.cancel()
        await asyncio.to_thread(plane.replicas.readers.shutdown)
        await asyncio.sleep(0)
        assert plane.partition("orders").bytes_out == 0


class TestLimits:
    async def test_the_limit_of_a_partition(self, plane: DataPlane, orders: Partition) -> None:
        sizes = [append(orders, b"x" * 100) for _ in range(5)]
        (data,) = await fetch(plane, at(0, limit=2 * sizes[0] + 10))
        assert len(values(data.records)) == 2

    async def test_the_limit_of_the_response_counts_all_partitions(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        second = plane.partition("orders", 1)
        size = append(orders, b"x" * 100)
        for _ in range(3):
            append(second, b"y" * 100)
        one, two = await fetch(plane, at(0), at(0, partition=1), max_bytes=3 * size)
        assert len(values(one.records)) == 1
        assert len(values(two.records)) == 2

    async def test_the_first_batch_comes_whole_however_large(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        append(orders, b"x" * 10_000)
        (data,) = await fetch(plane, at(0, limit=1), max_bytes=1)
        assert values(data.records) == [b"x" * 10_000]
        (data,) = await fetch(plane, at(0, limit=0), max_bytes=0)
        assert values(data.records) == [b"x" * 10_000]

    async def test_only_the_first_partition_with_records_may_go_over(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        second = plane.partition("orders", 1)
        append(second, b"x" * 10_000)
        empty, full = await fetch(plane, at(0), at(0, partition=1), max_bytes=1)
        assert len(empty.records) == 0
        assert len(values(full.records)) == 1
        append(orders, b"x" * 10_000)
        full, left_out = await fetch(plane, at(0), at(0, partition=1), max_bytes=1)
        assert len(values(full.records)) == 1
        assert len(left_out.records) == 0
        assert left_out.error_code == 0

    async def test_the_broker_has_a_limit_of_its_own(self, tmp_path: Path) -> None:
        plane = DataPlane(tmp_path, fetch_max_bytes=1024)
        await plane.start()
        partition = await plane.create("orders", qbus_durability="memory")
        for _ in range(10):
            append(partition, b"x" * 300)
        (data,) = await fetch(plane, at(0))
        assert len(values(data.records)) == 2
        await plane.stop()

    async def test_cold_reads_have_their_share_of_the_limit(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        second = plane.partition("orders", 1)
        size = append(orders, b"x" * 100)
        for partition in (orders, second, second):
            append(partition, b"y" * 100)
        await plane.restart()
        one, two = await fetch(plane, at(0), at(0, partition=1), max_bytes=3 * size)
        assert len(values(one.records)) == 2
        assert len(values(two.records)) == 1


class TestWaiting:
    async def test_a_poll_is_answered_with_what_arrives(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        waiting = poll(plane, at(0), wait_ms=60_000)
        assert len(plane.replicas.purgatory.fetches) == 1
        append(orders, b"a")
        (data,) = await answered(waiting)
        assert values(data.records) == [b"a"]
        assert len(plane.replicas.purgatory.fetches) == 0
        assert not orders.watchers

    async def test_a_poll_for_hidden_batches_is_answered_with_one(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        waiting = poll(plane, at(0), wait_ms=60_000, hidden=True)
        consumer = poll(plane, at(0), wait_ms=60_000)
        orders.append_own(control_batch([(ControlType.BOUND, encode_int64(0))], NOW_MS), 0)
        (data,) = await answered(waiting)
        (batch,) = iter_batches(bytes(data.records))
        assert (batch[0].is_hidden, data.high_watermark) == (True, 1)
        assert not consumer.done()
        append(orders, b"a")
        (data,) = await answered(consumer)
        assert values(data.records) == [b"a"]

    async def test_all_that_arrives_in_one_turn_is_in_one_answer(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        second = plane.partition("orders", 1)
        waiting = poll(plane, at(0), at(0, partition=1), wait_ms=60_000)
        append(orders, b"a")
        append(second, b"b")
        append(orders, b"c")
        one, two = await answered(waiting)
        assert values(one.records) == [b"a", b"c"]
        assert values(two.records) == [b"b"]

    async def test_it_waits_for_min_bytes_over_all_partitions(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        second = plane.partition("orders", 1)
        size = append(orders, b"a")
        waiting = poll(plane, at(0), at(0, partition=1), wait_ms=60_000, min_bytes=3 * size)
        append(second, b"b")
        await asyncio.sleep(0.01)
        assert not waiting.done()
        append(second, b"c")
        one, two = await answered(waiting)
        assert values(one.records) == [b"a"]
        assert values(two.records) == [b"b", b"c"]

    async def test_when_the_time_is_up_it_answers_with_what_is_there(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        append(orders, b"a")
        waiting = poll(plane, at(0), at(0, partition=1), wait_ms=20, min_bytes=10_000)
        one, two = await answered(waiting)
        assert values(one.records) == [b"a"]
        assert (len(two.records), two.error_code) == (0, 0)
        assert not orders.watchers

    async def test_an_empty_answer_after_the_time_is_up(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        (data,) = await answered(poll(plane, at(0), wait_ms=10))
        assert (len(data.records), data.error_code, data.high_watermark) == (0, 0, 0)

    async def test_every_field_of_the_answer_holds_when_it_is_sent(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        second = plane.partition("orders", 1)
        append(second, b"a")
        append(second, b"b")
        waiting = poll(plane, at(0), at(2, partition=1), wait_ms=60_000, isolation_level=1)
        verification = orders.begin_verification(7, 0, 0)
        orders.append(transactional(b"open"), 1, verification)
        second.delete_records_before(1)
        await asyncio.sleep(0)
        assert not waiting.done()
        plane.replicas.purgatory.fetches.drain()
        one, two = await answered(waiting)
        assert (one.high_watermark, one.last_stable_offset, len(one.records)) == (1, 0, 0)
        assert (two.high_watermark, two.log_start_offset) == (2, 1)

    async def test_durable_records_arrive_when_they_are_stable(self, plane: DataPlane) -> None:
        partition = await plane.create("safe")
        waiting = poll(plane, at(0), topic="safe", wait_ms=60_000)
        plane.disk.hold_syncs()
        partition.append(batch(b"a"), 1)
        await asyncio.sleep(0.02)
        assert not waiting.done()
        plane.disk.release_syncs()
        (data,) = await answered(waiting)
        assert values(data.records) == [b"a"]

    async def test_a_client_that_is_gone_leaves_nothing_behind(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        waiting = poll(plane, at(0), at(0, partition=1), wait_ms=60_000)
        waiting.cancel()
        assert len(plane.replicas.purgatory.fetches) == 0
        assert not orders.watchers
        assert not plane.partition("orders", 1).watchers

    async def test_a_topic_deleted_meanwhile_answers_the_poll(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        waiting = poll(plane, at(0), wait_ms=60_000)
        await plane.metadata.remove("orders")
        (data,) = await answered(waiting)
        assert ErrorCode(data.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def test_another_leader_answers_the_poll_with_its_name(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        waiting = poll(plane, at(0), wait_ms=60_000)
        topic = plane.metadata.topics["orders"]
        moved = PartitionInfo(2, 1, (1, 2), (2,))
        plane.metadata.brokers[2] = BrokerInfo(2, "other", 9093)
        await plane.metadata.put(Topic(topic.name, topic.id, (moved, moved), topic.config))
        response = over_the_wire(ApiKey.FETCH, LATEST, await waiting)
        data = response.responses[0].partitions[0]
        assert ErrorCode(data.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (2, 1)
        assert [node.node_id for node in response.node_endpoints] == [2]

    @pytest.mark.parametrize("version", [11, 12, 15])
    async def test_no_leader_is_named_where_its_address_has_no_room(
        self, plane: DataPlane, orders: Partition, version: int
    ) -> None:
        """A client may not know the address, and kafka-python raises then."""
        topic = plane.metadata.topics["orders"]
        moved = PartitionInfo(2, 1, (1, 2), (2,))
        plane.metadata.brokers[2] = BrokerInfo(2, "other", 9093)
        await plane.metadata.put(Topic(topic.name, topic.id, (moved, moved), topic.config))
        (data,) = await fetch(plane, at(0), version=version)
        assert ErrorCode(data.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (-1, -1)

    async def test_no_leader_is_named_that_does_not_live(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        topic = plane.metadata.topics["orders"]
        moved = PartitionInfo(2, 1, (1, 2), (2,))
        await plane.metadata.put(Topic(topic.name, topic.id, (moved, moved), topic.config))
        (data,) = await fetch(plane, at(0))
        assert ErrorCode(data.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (-1, -1)

    async def test_draining_answers_every_poll(self, plane: DataPlane, orders: Partition) -> None:
        waiting = poll(plane, at(0), wait_ms=60_000)
        plane.replicas.drain()
        (data,) = await answered(waiting)
        assert len(data.records) == 0

    async def test_records_deleted_meanwhile_are_out_of_range(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        append(orders, b"a", b"b")
        waiting = poll(plane, at(0), wait_ms=60_000, min_bytes=10_000)
        orders.log.delete_records_before(2)
        orders.wake()
        (data,) = await answered(waiting)
        assert ErrorCode(data.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert data.log_start_offset == 2


class TestErrors:
    """Errors are answered at once, however long the client would wait."""

    @pytest.mark.parametrize("offset", [-1, 4, 10**12])
    async def test_offsets_out_of_range(
        self, plane: DataPlane, orders: Partition, offset: int
    ) -> None:
        append(orders, b"a", b"b", b"c")
        (data,) = await fetch(plane, at(offset), wait_ms=60_000)
        assert ErrorCode(data.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (data.log_start_offset, data.high_watermark) == (0, 3)

    @pytest.mark.parametrize(
        ("epoch", "code"),
        [
            (0, ErrorCode.NONE),
            (1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ],
    )
    async def test_leader_epochs(
        self, plane: DataPlane, orders: Partition, epoch: int, code: ErrorCode
    ) -> None:
        append(orders, b"a")
        (data,) = await fetch(plane, at(0, epoch=epoch), wait_ms=60_000)
        assert ErrorCode(data.error_code) is code

    async def test_an_older_leader_epoch_is_fenced_and_told_the_current_one(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        topic = plane.metadata.topics["orders"]
        newer = PartitionInfo(1, 5, (1,), (1,))
        await plane.metadata.put(Topic(topic.name, topic.id, (newer, newer), topic.config))
        (data,) = await fetch(plane, at(0, epoch=4), wait_ms=60_000)
        assert ErrorCode(data.error_code) is ErrorCode.FENCED_LEADER_EPOCH
        assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (1, 5)

    @pytest.mark.parametrize(
        ("version", "code"),
        [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)],
    )
    async def test_unknown_topics(self, plane: DataPlane, version: int, code: ErrorCode) -> None:
        (data,) = await fetch(plane, at(0), topic="none", version=version, wait_ms=60_000)
        assert ErrorCode(data.error_code) is code

    async def test_unknown_partitions(self, plane: DataPlane, orders: Partition) -> None:
        (data,) = await fetch(plane, at(0, partition=7), wait_ms=60_000)
        assert ErrorCode(data.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def test_who_does_not_say_its_registration_is_no_follower(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        (data,) = await fetch(plane, at(0), version=11, replica_id=3)
        assert ErrorCode(data.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def test_nobody_follows_who_is_not_registered(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        sent = request(plane, at(0), replica_state=ReplicaState(replica_id=3, replica_epoch=1))
        response: FetchResponse = await plane.call(ApiKey.FETCH, LATEST, sent)
        assert ErrorCode(response.error_code) is ErrorCode.STALE_BROKER_EPOCH

    async def test_one_error_answers_the_rest_as_well(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        append(orders, b"a")
        good, bad = await fetch(plane, at(0), at(9, partition=1), wait_ms=60_000, min_bytes=10_000)
        assert values(good.records) == [b"a"]
        assert ErrorCode(bad.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE

    async def test_a_request_of_nothing_is_answered(self, plane: DataPlane) -> None:
        response = await plane.call(
            ApiKey.FETCH, LATEST, FetchRequest(max_wait_ms=60_000, min_bytes=1)
        )
        assert response.responses == []


class TestSessions:
    async def test_a_session_is_declined(self, plane: DataPlane, orders: Partition) -> None:
        sent = request(plane, at(0), session_id=0, session_epoch=0)
        response = await plane.call(ApiKey.FETCH, LATEST, sent)
        assert response.session_id == 0
        assert len(response.responses[0].partitions) == 1

    async def test_going_on_in_a_session_is_refused(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        sent = request(plane, at(0), session_id=77, session_epoch=3, wait_ms=60_000)
        response = await plane.call(ApiKey.FETCH, LATEST, sent)
        assert ErrorCode(response.error_code) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert response.responses == []


async def test_hidden_batches_are_for_those_who_ask_for_them(plane: DataPlane) -> None:
    orders = await plane.create("orders", qbus_delay_enable=True, qbus_durability="memory")
    append(orders, b"visible")
    hidden = build_batch([(None, b"hidden", [("qbus-delay", b"1h")], NOW_MS)])
    intake = plane.delays.intake(orders, memoryview(hidden), 1)
    assert intake is not None
    intake.append()
    for version in range(12, LATEST + 1):
        seen = {}
        for asked in (False, True):
            wanted = request(plane, at(0), version=version, hidden=asked)
            response = await plane.call(ApiKey.FETCH, version, wanted)
            (data,) = over_the_wire(ApiKey.FETCH, version, response).responses[0].partitions
            seen[asked] = (data.high_watermark, len(list(iter_batches(bytes(data.records or b"")))))
        assert seen == {False: (1, 1), True: (2, 2)}


class TestRightsThatAreTakenAway:
    async def test_a_fetch_that_waits_brings_nothing_then(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        rules = AclIndex()
        plane.control = AccessControl(AclAuthorizer(rules))
        everybody = Entry(EVERYONE, "*", Operation.READ, Permission.ALLOW)
        rules.put(Pattern(ResourceType.TOPIC, "orders"), [everybody])
        early = poll(plane, at(0), wait_ms=60_000)
        append(orders, b"before")
        (data,) = await answered(early)
        assert values(data.records) == [b"before"]
        late = poll(plane, at(1), wait_ms=60_000)
        rules.clear()
        append(orders, b"after")
        (data,) = await answered(late)
        assert data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not data.records


class TestLongRequests:
    """Of more partitions than are read at once; their connections handle nothing else meanwhile."""

    def asked(self, plane: DataPlane, wait_ms: int) -> FetchRequest:
        return request(plane, *[at(0)] * 201, wait_ms=wait_ms)

    @pytest.mark.sources
    async def test_they_wait_for_a_bounded_time(
        self, plane: DataPlane, orders: Partition, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fetch_handler, "_LONG_WAIT_MS", 1)
        asked = self.asked(plane, 2**31 - 1)
        response = await asyncio.wait_for(plane.call(ApiKey.FETCH, LATEST, asked), 10)
        assert [one.records for one in response.responses[0].partitions] == [b""]

    async def test_one_that_is_cancelled_watches_nothing(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        fetches = plane.replicas.purgatory.fetches
        waiting = asyncio.ensure_future(
            plane.begin(ApiKey.FETCH, LATEST, self.asked(plane, 60_000))
        )
        await eventually(lambda: len(fetches) == 1)
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.sleep(0)
        assert len(fetches) == 0

    @pytest.mark.sources
    async def test_records_that_come_between_two_pieces_are_not_waited_for(
        self, plane: DataPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They came before the partitions are watched."""
        config = {"qbus.durability": "memory"}
        await plane.metadata.put(plane.metadata.new_topic("wide", 201, config))
        await eventually(lambda: all(plane.replicas.get_partition("wide", n) for n in range(201)))
        first = plane.partition("wide")
        pieces = 0
        partitions_of = plane.replicas.partitions_of

        def find(key: Any) -> Any:
            nonlocal pieces
            pieces += 1
            if pieces == 2:
                append(first, b"a")
            return partitions_of(key)

        monkeypatch.setattr(plane.replicas, "partitions_of", find)
        asked = request(
            plane, *(at(0, index) for index in range(201)), topic="wide", wait_ms=60_000
        )
        response = await asyncio.wait_for(plane.call(ApiKey.FETCH, LATEST, asked), 5)
        assert pieces == 2
        assert values(response.responses[0].partitions[0].records) == [b"a"]
