"""The way to the right broker, and around the wrong ones."""

import asyncio

import pytest

from qbus.clients.cluster import Cluster, Lane, retrying
from qbus.clients.errors import ConnectionFailed
from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from qbus.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from qbus.wire.messages.list_groups import ListGroupsRequest
from tests.unit.clients.fake_broker import NODE, FakeBroker

DEAD = "127.0.0.1:1"


async def test_any_bootstrap_address_will_do() -> None:
    async with FakeBroker() as broker:
        cluster = Cluster(f"{DEAD},{broker.bootstrap}", "test", 5.0)
        await cluster.refresh(["t"])
        assert cluster.metadata.leader("t", 0) == NODE
        assert cluster.metadata.cluster_id == "fake"
        await cluster.close()


async def test_no_address_answers() -> None:
    cluster = Cluster(DEAD, "test", 5.0)
    with pytest.raises(ConnectionFailed):
        await cluster.refresh(())


async def test_one_connection_for_each_lane_however_many_ask_at_once() -> None:
    async with FakeBroker() as broker:
        cluster = Cluster(broker.bootstrap, "test", 5.0)
        await cluster.refresh(())
        opened = await asyncio.gather(
            *(cluster.connection(NODE, lane) for lane in Lane for _ in range(5))
        )
        assert len(set(opened)) == broker.connections == len(Lane)
        await cluster.close()


async def test_a_broken_connection_is_opened_again() -> None:
    async with FakeBroker() as broker:
        cluster = Cluster(broker.bootstrap, "test", 5.0)
        await cluster.refresh(())
        (await cluster.connection(NODE)).abort()
        await cluster.refresh(())
        assert broker.connections == 2
        await cluster.close()


async def test_an_unknown_broker() -> None:
    async with FakeBroker() as broker:
        cluster = Cluster(broker.bootstrap, "test", 5.0)
        with pytest.raises(ConnectionFailed):
            await cluster.ask(99, ApiKey.LIST_GROUPS, ListGroupsRequest())
        with pytest.raises(ApiError) as caught:
            await cluster.need_node(99)
        assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE
        await cluster.close()


async def test_what_metadata_says_of_a_topic() -> None:
    async with FakeBroker({"t": 2}) as broker:
        broker.leaders["t", 1] = -1
        cluster = Cluster(broker.bootstrap, "test", 5.0)
        await cluster.refresh(["t", "missing"])
        assert cluster.metadata.partition_counts(["t", "missing"]) == {"t": 2}
        assert cluster.metadata.leader("t", 0) == NODE
        for topic, partition, code in [
            ("t", 1, ErrorCode.LEADER_NOT_AVAILABLE),
            ("t", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("missing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("never asked for", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]:
            with pytest.raises(ApiError) as caught:
                cluster.metadata.leader(topic, partition)
            assert caught.value.code is code
        cluster.metadata.forget(["t"])
        await cluster.need(["t"])
        assert cluster.metadata.leader("t", 0) == NODE
        await cluster.close()


async def test_what_is_known_is_not_asked_for_again() -> None:
    async with FakeBroker() as broker:
        cluster = Cluster(broker.bootstrap, "test", 5.0)
        await asyncio.gather(*(cluster.need(["t"]) for _ in range(10)))
        assert len(broker.asked(ApiKey.METADATA)) == 1
        await cluster.close()


async def test_the_coordinator_is_looked_up_once_until_it_is_forgotten() -> None:
    async with FakeBroker() as broker:
        broker.handlers[ApiKey.HEARTBEAT] = lambda _: HeartbeatResponse()
        cluster = Cluster(broker.bootstrap, "test", 5.0)
        for _ in range(2):
            await cluster.ask_coordinator("g", ApiKey.HEARTBEAT, HeartbeatRequest(group_id="g"))
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == 1
        cluster.forget_coordinator("g")
        await cluster.ask_coordinator("g", ApiKey.HEARTBEAT, HeartbeatRequest(group_id="g"))
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == 2
        await cluster.close()


async def test_a_dead_coordinator_is_forgotten() -> None:
    async with FakeBroker() as broker:
        broker.handlers[ApiKey.FIND_COORDINATOR] = lambda _: FindCoordinatorResponse(
            coordinators=[Coordinator(key="g", node_id=2, host="127.0.0.1", port=1)]
        )
        cluster = Cluster(broker.bootstrap, "test", 5.0)
        for _ in range(2):
            with pytest.raises(ConnectionFailed):
                await cluster.ask_coordinator("g", ApiKey.HEARTBEAT, HeartbeatRequest())
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == 2
        await cluster.close()


async def test_no_connection_outlives_the_client() -> None:
    async with FakeBroker() as broker:
        cluster = Cluster(broker.bootstrap, "test", 5.0)
        asking = asyncio.create_task(cluster.refresh(()))
        await asyncio.sleep(0)
        await cluster.close()
        with pytest.raises(ConnectionFailed):
            await asking


class Attempts:
    """Fails with one error after another, then succeeds."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = list(codes)
        self.count = 0

    async def __call__(self) -> str:
        self.count += 1
        if self.codes:
            raise ApiError(self.codes.pop(0))
        return "done"


async def test_retriable_errors_are_retried() -> None:
    attempt = Attempts(ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION)
    assert await retrying(attempt, 5.0) == "done"
    assert attempt.count == 3


@pytest.mark.parametrize("code", [ErrorCode.INVALID_CONFIG, ErrorCode.LEADER_NOT_AVAILABLE])
async def test_other_errors_are_final(code: ErrorCode) -> None:
    attempt = Attempts(code)
    with pytest.raises(ApiError):
        await retrying(attempt, 5.0, final={ErrorCode.LEADER_NOT_AVAILABLE})
    assert attempt.count == 1


async def test_retries_end_with_the_last_error() -> None:
    attempt = Attempts(*[ErrorCode.NOT_CONTROLLER] * 100)
    with pytest.raises(ApiError) as caught:
        await retrying(attempt, 0.1)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
