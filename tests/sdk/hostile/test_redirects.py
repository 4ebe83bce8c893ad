"""Brokers that send clients from one to the other for ever: that ends, and does not spin."""

import asyncio
import time
from typing import Any

import pytest

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import FetchResponse
from qbus.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from qbus.wire.messages.join_group import JoinGroupResponse
from tests.sdk.hostile.victims import (
    LIMIT,
    PATIENCE,
    Starved,
    Victim,
    administer,
    consume,
    consume_in_a_group,
    produce,
)
from tests.support.fake_broker import FakeBroker
from tests.support.fake_cluster import FakeCluster

MOST_A_SECOND = 100
"""Requests of one kind to both brokers together: what a client may ask that waits in between."""


class PingPong(FakeCluster):
    """Two brokers of which each says that the other leads, whatever the metadata says."""

    def __init__(self) -> None:
        super().__init__(2)
        self._began = time.monotonic()
        for node in self.nodes.values():
            node.refusal = self._refusal  # type: ignore[method-assign]

    def _refusal(self, topic: str, partition: int, leader_epoch: int = -1) -> ErrorCode:
        """Refuse, and move the leader: the hint and the next metadata point to the other one."""
        leader = self.leader_of(topic, partition)
        assert leader is not None
        self.move(topic, partition, to=3 - leader.node_id)
        self.publish()
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def most_asked(self) -> float:
        """The most requests of one kind in a second."""
        asked = [api for node in self.nodes.values() for api, _, _ in node.requests]
        seconds = max(time.monotonic() - self._began, 1.0)
        return max(asked.count(api) for api in set(asked)) / seconds


@pytest.mark.parametrize("gives_hints", [True, False], ids=["hints", "no hints"])
@pytest.mark.parametrize(
    ("victim", "end"), [(produce, ApiError), (consume, Starved), (administer, ApiError)]
)
async def test_redirected_clients_ask_at_a_low_rate_and_get_an_error_in_time(
    victim: Victim, end: type[Exception], gives_hints: bool
) -> None:
    """A consumer goes on asking; the others get an error."""
    async with PingPong() as cluster, asyncio.timeout(LIMIT):
        cluster.gives_hints = gives_hints
        with pytest.raises(end) as caught:
            await victim(cluster.bootstrap)
        if victim is not consume:
            assert caught.value.retriable  # type: ignore[attr-defined]
        if victim is administer:
            assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[attr-defined]
        assert cluster.most_asked() < MOST_A_SECOND


async def test_a_coordinator_that_always_moves() -> None:
    async with FakeCluster(2) as cluster, asyncio.timeout(LIMIT):
        turn = 0

        def find(_: Any) -> FindCoordinatorResponse:
            nonlocal turn
            turn += 1
            node = cluster.nodes[1 + turn % 2]
            found = Coordinator(key="g", node_id=node.node_id, host="127.0.0.1", port=node.port)
            return FindCoordinatorResponse(coordinators=[found])

        for node in cluster.nodes.values():
            node.handlers[ApiKey.FIND_COORDINATOR] = find
            node.handlers[ApiKey.JOIN_GROUP] = lambda _: JoinGroupResponse(
                error_code=ErrorCode.NOT_COORDINATOR
            )
        with pytest.raises(Starved):
            await consume_in_a_group(cluster.bootstrap)
        assert turn < MOST_A_SECOND


async def test_offsets_that_are_always_out_of_range() -> None:
    async with FakeBroker() as broker, asyncio.timeout(LIMIT):
        broker.logs["t", 0].start, broker.logs["t", 0].end = 10, 5  # no offset is in between
        with pytest.raises(Starved):
            await consume(broker.bootstrap)
        assert len(broker.asked(ApiKey.LIST_OFFSETS)) < MOST_A_SECOND
        assert len(broker.asked(ApiKey.FETCH)) < MOST_A_SECOND


async def test_brokers_that_each_prefer_the_other_replica() -> None:
    """Each broker holds the partition for nearer to the other one (KIP-392)."""
    async with FakeCluster(2) as cluster, asyncio.timeout(LIMIT):
        for node in cluster.nodes.values():
            honest = node.handlers[ApiKey.FETCH]

            async def prefer(
                request: Any, honest: Any = honest, other: int = 3 - node.node_id
            ) -> FetchResponse:
                response: FetchResponse = await honest(request)
                for topic in response.responses:
                    for part in topic.partitions:
                        part.preferred_read_replica = other
                        part.records = b""
                return response

            node.handlers[ApiKey.FETCH] = prefer
        with pytest.raises(Starved):
            await consume(cluster.bootstrap, rack="here")
        asked = sum(len(node.asked(ApiKey.FETCH)) for node in cluster.nodes.values())
        assert asked < 2 * MOST_A_SECOND * PATIENCE
