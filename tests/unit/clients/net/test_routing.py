"""Asking the leaders of partitions: each its own, again where that helps, and of each by itself."""

from collections.abc import AsyncIterator

import pytest

from qbus.clients.errors import ConnectionFailed, PartialFailure
from qbus.clients.net.cluster import Cluster
from qbus.clients.net.retry import Outcomes
from qbus.clients.net.routing import ask_leaders
from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from tests.support.fake_broker import NODE, FakeBroker

FIRST, SECOND, THIRD = (TopicPartition("t", index) for index in range(3))


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 3}) as broker:
        yield broker


@pytest.fixture
async def cluster(broker: FakeBroker) -> AsyncIterator[Cluster]:
    cluster = Cluster(broker.bootstrap, "test", 1.0)
    yield cluster
    await cluster.close()


class Leaders:
    """Answers with the partition's index, or what is next for it."""

    def __init__(self, refusals: dict[TopicPartition, list[ErrorCode]] | None = None) -> None:
        self.refusals = refusals or {}
        self.asked: list[tuple[int, list[TopicPartition]]] = []

    async def __call__(self, node: int, led: list[TopicPartition]) -> Outcomes[TopicPartition, int]:
        self.asked.append((node, led))
        return {
            partition: ApiError(self.refusals[partition].pop(0))
            if self.refusals.get(partition)
            else partition.partition
            for partition in led
        }


async def test_one_request_to_each_leader(cluster: Cluster) -> None:
    leaders = Leaders()
    assert await ask_leaders(cluster, [FIRST, THIRD, FIRST], leaders) == {FIRST: 0, THIRD: 2}
    assert leaders.asked == [(NODE, [FIRST, THIRD])]


async def test_nothing_to_ask(cluster: Cluster, broker: FakeBroker) -> None:
    assert await ask_leaders(cluster, [], Leaders()) == {}
    assert broker.requests == []


async def test_only_refused_partitions_are_retried_with_fresh_metadata(
    cluster: Cluster, broker: FakeBroker
) -> None:
    leaders = Leaders({SECOND: [ErrorCode.NOT_LEADER_OR_FOLLOWER]})
    found = await ask_leaders(cluster, [FIRST, SECOND], leaders)
    assert found == {FIRST: 0, SECOND: 1}
    assert leaders.asked == [(NODE, [FIRST, SECOND]), (NODE, [SECOND])]
    assert len(broker.asked(ApiKey.METADATA)) == 2


async def test_a_partition_without_a_leader_delays_no_other(
    cluster: Cluster, broker: FakeBroker
) -> None:
    broker.leaders["t", 1] = -1
    leaders = Leaders()
    with pytest.raises(PartialFailure) as caught:
        await ask_leaders(cluster, [FIRST, SECOND, THIRD], leaders)
    assert caught.value.results == {FIRST: 0, THIRD: 2}
    assert caught.value.errors[SECOND].code is ErrorCode.LEADER_NOT_AVAILABLE
    assert leaders.asked == [(NODE, [FIRST, THIRD])]


async def test_what_does_not_exist_is_not_waited_for(cluster: Cluster) -> None:
    for missing in (TopicPartition("t", 3), TopicPartition("missing", 0)):
        with pytest.raises(ApiError) as caught:
            await ask_leaders(cluster, [missing], Leaders())
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_leader_that_cannot_be_reached(cluster: Cluster) -> None:
    attempts = 0

    async def ask(node: int, led: list[TopicPartition]) -> Outcomes[TopicPartition, int]:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ConnectionFailed("gone")
        return dict.fromkeys(led, 7)

    assert await ask_leaders(cluster, [FIRST], ask) == {FIRST: 7}
