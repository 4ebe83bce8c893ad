"""Batches fetched from brokers and stored on them, wherever partitions are led."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from qbus.clients.batches import (
    FetchedBatches,
    FetchLimits,
    ProducerSequence,
    as_produced,
    fetch_batches,
    find_producer,
    produce_batches,
    read_batches,
    store_batches,
    with_sequence,
)
from qbus.clients.errors import PartialFailure, RequestTimedOut
from qbus.clients.net.cluster import Cluster
from qbus.clients.net.versions import SPOKEN
from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.records import build_batch, read_header
from qbus.wire import ApiKey
from tests.support.fake_cluster import FakeCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LIMITS = FetchLimits(1 << 20, 1 << 20)
OLD, NEW = UUID(int=1), UUID(int=2)
KNOWS_IDS = {**SPOKEN, ApiKey.FETCH: (4, 17)}


def batch(*values: bytes, producer: int = 9, sequence: int = 0) -> bytearray:
    made = build_batch([(None, value, (), 1_700_000_000_000) for value in values])
    return with_sequence(made, ProducerSequence(producer, 0, sequence))


class Scene:
    def __init__(self, brokers: FakeCluster, cluster: Cluster) -> None:
        self.brokers = brokers
        self.cluster = cluster

    def values(self, partition: TopicPartition) -> list[bytes | None]:
        return self.brokers.logs[partition].values()


@asynccontextmanager
async def scene(timeout: float = 5.0) -> AsyncIterator[Scene]:
    async with FakeCluster(2, {"t": 2}) as brokers:
        cluster = Cluster(brokers.bootstrap, "test", timeout)
        await cluster.refresh(["t"])
        try:
            yield Scene(brokers, cluster)
        finally:
            await cluster.close()


async def test_many_partitions_in_one_request() -> None:
    async with scene() as s:
        stored = await produce_batches(s.cluster, 1, {T0: batch(b"a", b"b"), T1: batch(b"c")})
        assert not any(isinstance(outcome, ApiError) for outcome in stored.values())
        found = await fetch_batches(s.cluster, 1, {T0: 0, T1: 0}, LIMITS)
        assert s.values(T0) == [b"a", b"b"]
        assert s.values(T1) == [b"c"]
        for partition, fetched in found.items():
            assert isinstance(fetched, FetchedBatches)
            assert bytes(fetched.records) == b"".join(s.brokers.logs[partition].batches)
            assert fetched.high_watermark == s.brokers.logs[partition].end
        node = s.brokers.nodes[1]
        assert len(node.asked(ApiKey.PRODUCE)) == len(node.asked(ApiKey.FETCH)) == 1


async def test_a_partition_that_has_moved_is_an_error_of_its_own_and_noted() -> None:
    async with scene() as s:
        s.brokers.move("t", 0, 2)
        stored = await produce_batches(s.cluster, 1, {T0: batch(b"a"), T1: batch(b"b")})
        refused = stored[T0]
        assert isinstance(refused, ApiError)
        assert refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not isinstance(stored[T1], ApiError)
        assert s.cluster.metadata.leader(*T0) == 2


async def test_who_has_fetched_from_the_wrong_broker_asks_anew_who_leads() -> None:
    async with scene() as s:
        s.brokers.move("t", 0, 2)
        found = await fetch_batches(s.cluster, 1, {T0: 0}, LIMITS)
        assert isinstance(found[T0], ApiError)
        assert s.cluster.metadata.missing(["t"]) == ["t"]


class TestTopicsByTheirIds:
    async def test_another_topic_of_the_same_name_is_refused(self) -> None:
        async with scene() as s:
            s.brokers.nodes[1].versions = KNOWS_IDS
            s.brokers.ids["t"] = OLD.bytes
            await store_batches(s.cluster, {T0: batch(b"a")})
            found = await fetch_batches(s.cluster, 1, {T0: 0}, LIMITS, topic_ids={"t": OLD})
            fetched = found[T0]
            assert isinstance(fetched, FetchedBatches)
            assert bytes(fetched.records) == s.brokers.logs[T0].batches[0]
            s.brokers.ids["t"] = NEW.bytes
            found = await fetch_batches(s.cluster, 1, {T0: 0}, LIMITS, topic_ids={"t": OLD})
            refused = found[T0]
            assert isinstance(refused, ApiError)
            assert refused.code is ErrorCode.UNKNOWN_TOPIC_ID
            assert s.cluster.metadata.missing(["t"]) == ["t"]

    @pytest.mark.parametrize("known", [{}, {"t": UUID(int=0)}, {"u": OLD}])
    async def test_one_whose_id_is_not_known_goes_by_its_name(self, known: dict[str, UUID]) -> None:
        async with scene() as s:
            s.brokers.nodes[1].versions = KNOWS_IDS
            found = await fetch_batches(s.cluster, 1, {T0: 0}, LIMITS, topic_ids=known)
            assert isinstance(found[T0], FetchedBatches)

    async def test_so_does_any_where_the_broker_knows_no_ids(self) -> None:
        async with scene() as s:
            found = await fetch_batches(s.cluster, 1, {T0: 0}, LIMITS, topic_ids={"t": OLD})
            assert isinstance(found[T0], FetchedBatches)

    async def test_who_leads_instead_comes_with_an_address(self) -> None:
        async with scene() as s:
            s.brokers.nodes[1].versions = KNOWS_IDS
            s.brokers.ids["t"] = OLD.bytes
            s.brokers.move("t", 0, 2)
            found = await fetch_batches(s.cluster, 1, {T0: 0}, LIMITS, topic_ids={"t": OLD})
            assert isinstance(found[T0], ApiError)
            assert s.cluster.metadata.leader(*T0) == 2


async def test_a_later_leader_than_the_one_that_was_wanted_is_refused() -> None:
    async with scene() as s:
        s.brokers.move("t", 0, 1)
        s.brokers.publish()
        await s.cluster.refresh(["t"])
        found = await fetch_batches(s.cluster, 1, {T0: 0, T1: 0}, LIMITS, leader_epochs={T0: 0})
        refused = found[T0]
        assert isinstance(refused, ApiError)
        assert refused.code is ErrorCode.FENCED_LEADER_EPOCH
        assert isinstance(found[T1], FetchedBatches)


async def test_batches_are_stored_wherever_partitions_go() -> None:
    async with scene() as s:
        s.brokers.move("t", 0, 2)
        s.brokers.publish()
        stored = await store_batches(s.cluster, {T0: batch(b"a"), T1: batch(b"b")})
        assert s.values(T0) == [b"a"]
        assert s.values(T1) == [b"b"]
        assert stored[T0].base_offset == 0


async def test_a_batch_that_is_there_already_is_stored_once() -> None:
    async with scene() as s:
        for _ in range(2):
            assert (await store_batches(s.cluster, {T0: batch(b"a")}))[T0].base_offset == 0
        assert s.values(T0) == [b"a"]


async def test_some_are_refused() -> None:
    async with scene() as s:
        await store_batches(s.cluster, {T0: batch(b"a")})
        with pytest.raises(PartialFailure) as caught:
            await store_batches(s.cluster, {T0: batch(b"x", sequence=7), T1: batch(b"b")})
        assert caught.value.errors[T0].code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert caught.value.results[T1].base_offset == 0


async def test_exactly_the_batches_of_a_range() -> None:
    async with scene() as s:
        for i in range(4):
            await store_batches(s.cluster, {T0: batch(b"a", b"b", sequence=2 * i)})
        for start, end, expected in [
            (0, 8, [0, 2, 4, 6]),
            (2, 6, [2, 4]),
            (3, 5, [2, 4]),
            (4, 4, []),
        ]:
            found = [
                header.base_offset async for header, _ in read_batches(s.cluster, T0, start, end)
            ]
            assert found == expected


async def test_a_copy_of_a_range_is_stored_under_another_name() -> None:
    async with scene() as s:
        await store_batches(s.cluster, {T0: batch(b"a", b"b")})
        await store_batches(s.cluster, {T0: batch(b"c", sequence=2)})
        sequence = 0
        async for header, data in read_batches(s.cluster, T0, 0, 3):
            copy = with_sequence(data, ProducerSequence(77, 3, sequence))
            await store_batches(s.cluster, {T1: copy})
            sequence += header.records_count
        assert s.values(T1) == [b"a", b"b", b"c"]
        assert [h.base_sequence for h in await find_producer(s.cluster, T1, 0, 3, 77)] == [0, 2]
        assert await find_producer(s.cluster, T1, 0, 3, 9) == []
        assert [h.base_offset for h in await find_producer(s.cluster, T1, 2, 3, 77)] == [2]


async def test_a_range_that_is_not_there_yet() -> None:
    async with scene(timeout=0.2) as s:
        await store_batches(s.cluster, {T0: batch(b"a")})
        with pytest.raises(RequestTimedOut):
            [header async for header, _ in read_batches(s.cluster, T0, 0, 5)]


async def test_a_range_that_is_gone() -> None:
    async with scene() as s:
        await store_batches(s.cluster, {T0: batch(b"a")})
        s.brokers.logs[T0].start = 1
        with pytest.raises(ApiError) as caught:
            [header async for header, _ in read_batches(s.cluster, T0, 0, 1)]
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_stored_batch_is_sent_without_its_place() -> None:
    async with scene() as s:
        await store_batches(s.cluster, {T0: batch(b"a")})
        await store_batches(s.cluster, {T1: as_produced(s.brokers.logs[T0].batches[0])})
        (sent,) = s.brokers.nodes[1].asked(ApiKey.PRODUCE)[-1].topic_data[0].partition_data
        assert read_header(sent.records).base_offset == 0
