"""The way to the right broker, and around the wrong ones."""

import asyncio

import pytest

from qbus.clients.errors import ClientClosed, ConnectionFailed, check
from qbus.clients.net.cluster import Cluster
from qbus.clients.net.pool import ConnectionGroup
from qbus.clients.net.retry import retrying
from qbus.clients.net.routing import ask_leaders, retry_at_coordinator
from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ErrorCode, WireError
from qbus.wire import ApiKey
from qbus.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from qbus.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from qbus.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from qbus.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from tests.support.fake_broker import NODE, FakeBroker, Hangup
from tests.support.waiting import eventually

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


async def test_each_connection_group_has_one_connection_for_concurrent_callers() -> None:
    async with FakeBroker() as broker:
        cluster = Cluster(broker.bootstrap, "test", 5.0)
        await cluster.refresh(())
        opened = await asyncio.gather(
            *(
                cluster.connection(NODE, connection_group)
                for connection_group in ConnectionGroup
                for _ in range(5)
            )
        )
        assert len(set(opened)) == broker.connections == len(ConnectionGroup)
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


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.GROUP_AUTHORIZATION_FAILED]
)
async def test_a_coordinator_is_waited_for_unless_the_group_is_refused(code: ErrorCode) -> None:
    async with FakeBroker() as broker:
        broker.handlers[ApiKey.FIND_COORDINATOR] = lambda _: FindCoordinatorResponse(
            coordinators=[Coordinator(key="g", error_code=code)]
        )
        cluster = Cluster(broker.bootstrap, "test", 5.0)
        with pytest.raises(ApiError):
            await cluster.coordinator("g")
        assert bool(cluster.troubles) is code.retriable
        await cluster.close()


async def test_one_log_tells_of_brokers_and_of_topics() -> None:
    cluster = Cluster(DEAD, "test", 5.0)
    with pytest.raises(ConnectionFailed):
        await cluster.refresh(())
    assert cluster.troubles
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
        with pytest.raises(ClientClosed):
            await asking


async def test_a_closed_client_retries_nothing() -> None:
    async with FakeBroker() as broker:
        cluster = Cluster(broker.bootstrap, "test", 60.0)
        await cluster.refresh(())
        await cluster.close()
        with pytest.raises(ClientClosed):
            await retrying(cluster, "it", lambda: cluster.refresh(()), 60.0)
        with pytest.raises(ClientClosed):
            await cluster.connection(NODE)


class TestAroundBadBrokers:
    async def test_a_half_open_broker_is_not_waited_for(self) -> None:
        async with FakeBroker() as silent, FakeBroker() as broker:
            silent.handlers[ApiKey.METADATA] = lambda _: asyncio.sleep(60)
            cluster = Cluster(f"{silent.bootstrap},{broker.bootstrap}", "test", 1.5)
            await cluster.refresh(["t"])
            assert cluster.metadata.leader("t", 0) == NODE
            await cluster.close()

    async def test_nor_asked_first_the_next_time(self) -> None:
        async with FakeBroker() as silent, FakeBroker() as broker:
            silent.handlers[ApiKey.METADATA] = lambda _: asyncio.sleep(60)
            honest = broker.metadata

            def both(request: MetadataRequest) -> MetadataResponse:
                response = honest(request)
                response.brokers.append(
                    MetadataResponseBroker(node_id=2, host="127.0.0.1", port=silent.port)
                )
                return response

            broker.handlers[ApiKey.METADATA] = both
            cluster = Cluster(f"{silent.bootstrap},{broker.bootstrap}", "test", 1.5)
            for _ in range(10):
                await cluster.refresh(())
            assert len(silent.asked(ApiKey.METADATA)) == 1
            await cluster.close()

    async def test_but_again_once_it_has_answered(self) -> None:
        async with FakeBroker() as one, FakeBroker() as other:

            def both(request: MetadataRequest) -> MetadataResponse:
                response = one.metadata(request)
                response.brokers.append(
                    MetadataResponseBroker(node_id=2, host="127.0.0.1", port=other.port)
                )
                return response

            async def late(request: MetadataRequest) -> MetadataResponse:
                await asyncio.sleep(0.4)
                return both(request)

            def hang_up(_: object) -> None:
                raise Hangup

            one.handlers[ApiKey.METADATA] = both
            other.handlers[ApiKey.METADATA] = late
            cluster = Cluster(f"{other.bootstrap},{one.bootstrap}", "test", 0.9)
            await cluster.refresh(())
            other.handlers[ApiKey.METADATA] = both
            one.handlers[ApiKey.METADATA] = hang_up
            await cluster.refresh(())
            one.handlers[ApiKey.METADATA] = both
            asked = len(other.asked(ApiKey.METADATA))
            for _ in range(5):
                await cluster.refresh(())
            assert len(other.asked(ApiKey.METADATA)) == asked + 5
            await cluster.close()

    async def test_a_broker_whose_answers_are_nonsense_ends_in_a_clear_error(self) -> None:
        async with FakeBroker() as broker:
            broker.handlers[ApiKey.METADATA] = lambda _: b"\0\0\0\x06\0\0\0\x02\xff\xff"
            cluster = Cluster(broker.bootstrap, "test", 5.0)
            with pytest.raises(WireError):
                await retrying(cluster, "it", lambda: cluster.refresh(["t"]), 5.0)
            await cluster.close()

    async def test_metadata_without_brokers_is_ignored(self) -> None:
        async with FakeBroker() as broker:
            cluster = Cluster(broker.bootstrap, "test", 5.0)
            await cluster.refresh(["t"])
            broker.handlers[ApiKey.METADATA] = lambda _: MetadataResponse()
            with pytest.raises(ConnectionFailed, match="no brokers"):
                await retrying(cluster, "it", lambda: cluster.refresh(["t"]), 0.2)
            assert cluster.metadata.leader("t", 0) == NODE
            await cluster.close()

    async def test_brokers_at_impossible_addresses(self) -> None:
        async with FakeBroker() as broker:
            honest = broker.metadata

            def elsewhere(request: MetadataRequest) -> MetadataResponse:
                response = honest(request)
                response.brokers = [
                    MetadataResponseBroker(node_id=NODE, host="a" * 300, port=-1),
                    MetadataResponseBroker(node_id=2, host="", port=99_999),
                ]
                return response

            broker.handlers[ApiKey.METADATA] = elsewhere
            cluster = Cluster(broker.bootstrap, "test", 5.0)
            for _ in range(3):
                await cluster.refresh(["t"])
            with pytest.raises(ConnectionFailed):
                await cluster.ask(NODE, ApiKey.LIST_GROUPS, ListGroupsRequest())
            await cluster.close()

    async def test_all_known_brokers_are_gone(self) -> None:
        async with FakeBroker() as first, FakeBroker() as second:
            honest = first.metadata

            def gone(request: MetadataRequest) -> MetadataResponse:
                response = honest(request)
                response.brokers = [MetadataResponseBroker(node_id=NODE, host="127.0.0.1", port=1)]
                return response

            first.handlers[ApiKey.METADATA] = gone
            cluster = Cluster(first.bootstrap, "test", 5.0)
            await cluster.refresh(())
            first.handlers[ApiKey.METADATA] = second.metadata
            await cluster.refresh(())
            assert cluster.metadata.nodes[NODE].port == second.port
            await cluster.close()

    async def test_a_broker_that_says_begin_again(self) -> None:
        async with FakeBroker() as broker:
            cluster = Cluster(broker.bootstrap, "test", 5.0)
            await cluster.refresh(())
            broker.handlers[ApiKey.METADATA] = lambda _: MetadataResponse(
                error_code=ErrorCode.REBOOTSTRAP_REQUIRED
            )
            with pytest.raises(ApiError):
                await cluster.refresh(())
            assert not cluster.metadata.nodes
            broker.handlers[ApiKey.METADATA] = broker.metadata
            await cluster.refresh(())
            assert cluster.metadata.nodes
            await cluster.close()

    async def test_leaders_that_are_none_for_ever(self) -> None:
        async with FakeBroker() as broker:
            cluster = Cluster(broker.bootstrap, "test", 0.3)

            async def ask(node: int, led: list[TopicPartition]) -> dict[TopicPartition, int]:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

            with pytest.raises(ApiError) as caught:
                await ask_leaders(cluster, [TopicPartition("t", 0)], ask)
            assert caught.value.retriable
            assert len(broker.asked(ApiKey.METADATA)) > 1
            await cluster.close()

    async def test_coordinators_that_point_at_each_other(self) -> None:
        async with FakeBroker() as one, FakeBroker() as other:
            for broker, pointed_at in ((one, other), (other, one)):
                broker.handlers[ApiKey.FIND_COORDINATOR] = pointed_at.find_coordinator
                broker.handlers[ApiKey.HEARTBEAT] = lambda _: HeartbeatResponse(
                    error_code=ErrorCode.NOT_COORDINATOR
                )
            cluster = Cluster(f"{one.bootstrap},{other.bootstrap}", "test", 0.3)

            async def attempt() -> None:
                response = await cluster.ask_coordinator(
                    "g", ApiKey.HEARTBEAT, HeartbeatRequest(group_id="g")
                )
                check(response.error_code)

            with pytest.raises(ApiError) as caught:
                await retry_at_coordinator(cluster, "g", attempt)
            assert caught.value.retriable
            await cluster.close()

    @pytest.mark.parametrize("count", [0, 2])
    async def test_a_broker_that_names_no_coordinator_or_several(self, count: int) -> None:
        async with FakeBroker() as broker:
            broker.handlers[ApiKey.FIND_COORDINATOR] = lambda _: FindCoordinatorResponse(
                coordinators=[Coordinator(key="g")] * count
            )
            cluster = Cluster(broker.bootstrap, "test", 5.0)
            with pytest.raises(WireError, match="coordinators"):
                await cluster.coordinator("g")
            await cluster.close()

    async def test_a_controller_that_is_gone_is_looked_for_again(self) -> None:
        async with FakeBroker() as broker:
            honest = broker.metadata

            def elsewhere(request: MetadataRequest) -> MetadataResponse:
                response = honest(request)
                response.controller_id = 2
                response.brokers.append(MetadataResponseBroker(node_id=2, host="127.0.0.1", port=1))
                return response

            broker.handlers[ApiKey.METADATA] = elsewhere
            broker.handlers[ApiKey.LIST_GROUPS] = lambda _: ListGroupsResponse()
            cluster = Cluster(broker.bootstrap, "test", 5.0)
            with pytest.raises(ConnectionFailed):
                await cluster.ask_controller(ApiKey.LIST_GROUPS, ListGroupsRequest())
            broker.handlers[ApiKey.METADATA] = honest
            await cluster.ask_controller(ApiKey.LIST_GROUPS, ListGroupsRequest())
            await cluster.close()


async def test_metadata_in_use_is_refreshed_regularly() -> None:
    async with FakeBroker() as broker:
        cluster = Cluster(broker.bootstrap, "test", 5.0, metadata_max_age=0.01)
        await cluster.need(["t"])
        broker.topics["t"] = 5
        await eventually(lambda: cluster.metadata.partition_counts(["t"]) == {"t": 5})
        broker.handlers[ApiKey.METADATA] = lambda _: b"\0\0\0\x06\0\0\0\x63\xff\xff"
        asked = len(broker.asked(ApiKey.METADATA))
        await eventually(lambda: len(broker.asked(ApiKey.METADATA)) > asked + 2)
        assert cluster.metadata.leader("t", 0) == NODE
        await cluster.close()
