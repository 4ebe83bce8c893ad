"""What quotas do to requests: clients are told of their delay, muted for it, and none evades it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest

from qbus.broker.kafka.dispatch import Dispatcher
from qbus.broker.kafka.throttling import LONGEST_HOLD_S, Charge, admit
from qbus.broker.net.connection import HoldRequest
from qbus.broker.net.peer import ANONYMOUS, Peer, Principal
from qbus.broker.quotas import ClientQuotas, Windows
from qbus.config import ListenerInfo
from qbus.errors import ApiError, ErrorCode
from qbus.metadata.client_quotas import DEFAULT, QuotaEntity
from qbus.wire import ApiKey, Struct, decode_response, encode_request
from qbus.wire.messages.api_versions import ApiVersionsRequest
from qbus.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from qbus.wire.messages.heartbeat import HeartbeatRequest
from qbus.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from qbus.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.support.data_plane import DataPlane
from tests.support.logs import batch

HERE = ListenerInfo.plaintext("127.0.0.1", 9092)
ALICE = Principal("User", "alice")
RATE = 1000.0
BURST = 1000  # bytes that may be used at once, with two windows of a second
VALUE = b"v" * 400


class Client:
    """A connection, and for how long it was muted."""

    def __init__(self, principal: Principal = ANONYMOUS) -> None:
        self.mutes: list[float] = []
        self.peer = Peer(1, "10.0.0.1", HERE, principal=principal, mute=self.mutes.append)


class Bus:
    """A broker's data plane behind quotas, and what answers requests to it."""

    def __init__(self, plane: DataPlane) -> None:
        plane.broker.metrics = plane.metrics
        self.quotas = plane.broker.quotas = ClientQuotas(Windows(2, 1.0, 2.0))
        self.plane = plane
        self.dispatcher = Dispatcher(plane.broker)

    def limit(self, entity: QuotaEntity | None = None, **quotas: float) -> None:
        """Put quotas of one entity in force, by default of every user."""
        everybody = QuotaEntity(DEFAULT) if entity is None else entity
        self.quotas.set_quotas({everybody: quotas})

    async def ask(self, client: Client, key: ApiKey, version: int, request: Struct) -> Any:
        """Send a request as the client, and read the answer as it does; None: there is none."""
        sent = encode_request(key, version, 7, "app", request)
        frame = memoryview(bytearray(b"".join(map(bytes, sent))))[4:]
        reply = self.dispatcher(client.peer, frame)
        if reply is None:
            return None
        if not isinstance(reply, list):
            answered = asyncio.Event()
            reply.on_done(answered.set)
            await asyncio.wait_for(answered.wait(), 10)
            reply = reply.result()
        data = b"".join(
            bytes(part) if isinstance(part, bytes | bytearray | memoryview) else part.read()
            for part in reply
        )
        correlation, response = decode_response(key, version, memoryview(data)[4:])
        assert correlation == 7
        return response

    async def produce(
        self, client: Client, *values: bytes, version: int = 12, acks: int = 1
    ) -> ProduceResponse | None:
        data = PartitionProduceData(index=0, records=bytes(batch(*values)))
        topics = [TopicProduceData(name="t", partition_data=[data])]
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
        answer: ProduceResponse | None = await self.ask(client, ApiKey.PRODUCE, version, request)
        return answer

    async def fetch(self, client: Client, version: int = 12, **fields: Any) -> FetchResponse:
        wanted = FetchPartition(partition=0, partition_max_bytes=1 << 20)
        fields = {"max_bytes": 1 << 20, "session_epoch": 0, "min_bytes": 1, **fields}
        request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[wanted])], **fields)
        answer: FetchResponse = await self.ask(client, ApiKey.FETCH, version, request)
        return answer


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[Bus]:
    plane = DataPlane(tmp_path, durability="memory")
    await plane.start()
    await plane.create("t")
    yield Bus(plane)
    await plane.stop()


def size_of(answer: FetchResponse) -> int:
    return sum(len(p.records or b"") for topic in answer.responses for p in topic.partitions)


# A version of the lean way, and one that goes the general way.
BOTH_WAYS = (12, 7)


@pytest.mark.parametrize("version", BOTH_WAYS)
async def test_below_its_quota_nobody_notices(bus: Bus, version: int) -> None:
    bus.limit(producer_byte_rate=1e9, consumer_byte_rate=1e9)
    client = Client()
    produced = await bus.produce(client, VALUE, version=version)
    fetched = await bus.fetch(client, version)
    assert produced is not None
    assert produced.throttle_time_ms == fetched.throttle_time_ms == 0
    assert size_of(fetched) > 400
    assert client.mutes == []


@pytest.mark.parametrize("version", BOTH_WAYS)
@pytest.mark.parametrize("acks", [1, -1])
async def test_a_produce_above_is_stored_and_answered_and_its_connection_muted(
    bus: Bus, version: int, acks: int
) -> None:
    bus.limit(producer_byte_rate=RATE)
    client = Client()
    answer = await bus.produce(client, *[VALUE] * 10, version=version, acks=acks)
    assert answer is not None
    (partition,) = answer.responses[0].partition_responses
    assert (partition.error_code, partition.base_offset) == (0, 0)
    assert 3000 <= answer.throttle_time_ms <= 3300
    assert max(client.mutes) == pytest.approx(3.1, abs=0.3)
    assert bus.quotas.produce.throttled == 1


@pytest.mark.parametrize("version", BOTH_WAYS)
async def test_a_produce_and_a_fetch_quota_do_not_mix(bus: Bus, version: int) -> None:
    bus.limit(producer_byte_rate=RATE, consumer_byte_rate=RATE, request_percentage=1e6)
    client = Client()
    answer = await bus.produce(client, *[VALUE] * 10, version=version)
    assert answer is not None
    assert answer.responses[0].partition_responses[0].base_offset == 0
    assert 3000 <= answer.throttle_time_ms <= 3300
    fetched = await bus.fetch(client, version)
    assert size_of(fetched) > 4000
    assert bus.quotas.fetch.throttled == 1


async def test_a_produce_without_an_answer_mutes_all_the_same(bus: Bus) -> None:
    bus.limit(producer_byte_rate=RATE)
    client = Client()
    assert await bus.produce(client, *[VALUE] * 10, acks=0) is None
    assert max(client.mutes) == pytest.approx(3.1, abs=0.3)


@pytest.mark.parametrize("version", BOTH_WAYS)
async def test_a_fetch_brings_what_may_be_used_and_then_nothing_until_it_is_paid(
    bus: Bus, version: int
) -> None:
    for _ in range(20):
        await bus.produce(Client(), VALUE)
    bus.limit(consumer_byte_rate=RATE)
    client = Client()
    first = await bus.fetch(client, version)
    assert 400 < size_of(first) <= BURST
    answers = [await bus.fetch(client, version) for _ in range(3)]
    throttled = [one for one in answers if not one.responses]
    assert throttled
    assert all(one.throttle_time_ms > 0 and one.error_code == 0 for one in throttled)
    assert sum(map(size_of, answers)) <= BURST
    assert client.mutes


@pytest.mark.parametrize("version", BOTH_WAYS)
async def test_a_batch_that_is_larger_than_all_that_may_be_saved_comes_and_is_paid_for(
    bus: Bus, version: int
) -> None:
    await bus.produce(Client(), *[VALUE] * 50)
    bus.limit(consumer_byte_rate=RATE)
    client = Client()
    answer = await bus.fetch(client, version)
    assert size_of(answer) > 20 * BURST / 1.1
    # It is slowed down for one burst at a time, for the sake of its heartbeats; all is owed.
    assert answer.throttle_time_ms == pytest.approx(1001, abs=2)
    again = await bus.fetch(client, version)
    assert not again.responses
    meter = bus.quotas.of(client.peer, memoryview(bytes(8) + b"\0\x03app"), 0.0).fetch
    assert meter is not None
    assert meter.credit(1e9) == BURST


async def test_a_throttled_produce_leaves_nothing_behind_for_the_next_request(bus: Bus) -> None:
    bus.limit(producer_byte_rate=RATE, consumer_byte_rate=1e9, request_percentage=1e6)
    client = Client()
    slowed = await bus.produce(client, *[VALUE] * 10)
    fetched = await bus.fetch(client)
    other = await bus.ask(client, ApiKey.API_VERSIONS, 2, ApiVersionsRequest())
    assert slowed is not None
    assert slowed.throttle_time_ms > 3000
    assert fetched.throttle_time_ms == other.throttle_time_ms == 0


async def test_only_work_counts_as_time(tmp_path: Path) -> None:
    plane = DataPlane(tmp_path)
    await plane.start()
    await plane.create("t")
    bus, client = Bus(plane), Client()
    bus.limit(request_percentage=100.0)
    plane.disk.hold_syncs()
    waiting = asyncio.ensure_future(bus.produce(client, VALUE, acks=-1))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    plane.disk.release_syncs()
    await waiting
    ((_, percent),) = bus.quotas.request.fastest(1, perf_counter())
    assert 0.0 < percent * bus.quotas.burst_s < 100.0 * 0.2
    await plane.stop()


async def test_a_waiting_fetch_is_counted_when_it_is_answered(bus: Bus) -> None:
    bus.limit(consumer_byte_rate=RATE)
    client = Client()
    waiting = asyncio.ensure_future(bus.fetch(client, max_wait_ms=5000))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await bus.produce(Client(), *[VALUE] * 10)
    answer = await waiting
    assert size_of(answer) > 4000
    assert answer.throttle_time_ms > 0


async def test_followers_are_not_counted(bus: Bus) -> None:
    bus.limit(consumer_byte_rate=1.0, request_percentage=0.001)
    client = Client()
    answer = await bus.fetch(client, 16, replica_state=ReplicaState(replica_id=2))
    assert answer.throttle_time_ms == 0
    assert client.mutes == []


async def test_what_brokers_ask_each_other_is_not_counted(bus: Bus) -> None:
    bus.limit(request_percentage=1e-9)
    sent = encode_request(ApiKey.WRITE_TXN_MARKERS, 1, 7, "app", WriteTxnMarkersRequest())
    frame = memoryview(b"".join(map(bytes, sent)))[4:]
    assert admit(bus.quotas, Client().peer, frame, ApiKey.WRITE_TXN_MARKERS, 0.0) is None


async def test_what_comes_before_authentication_neither_counts_nor_waits(bus: Bus) -> None:
    bus.limit(request_percentage=0.0001)
    guest, stranger = Client(), Client()
    stranger.peer.is_authenticated = False
    bus.plane.broker.authentication = SimpleNamespace(gate=lambda *_: None)
    await bus.ask(guest, ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    assert guest.mutes, "who may stay unknown shares one quota"
    await bus.ask(stranger, ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    assert stranger.mutes == []


async def test_time_is_counted_for_every_api_and_bounded_by_a_window(bus: Bus) -> None:
    bus.limit(request_percentage=1e-6)
    client = Client()
    answer = await bus.ask(client, ApiKey.API_VERSIONS, 2, ApiVersionsRequest())
    assert answer.throttle_time_ms == 1001
    assert client.mutes == [1.0]
    assert answer.api_keys, "the answer is whole"


async def test_time_is_not_evaded_by_many_connections(bus: Bus) -> None:
    bus.limit(request_percentage=1e-6)
    await bus.ask(Client(), ApiKey.API_VERSIONS, 2, ApiVersionsRequest())
    for _ in range(20):
        with pytest.raises(HoldRequest) as held:
            await bus.ask(Client(), ApiKey.API_VERSIONS, 2, ApiVersionsRequest())
        assert 0.5 < held.value.seconds <= 1.0


def test_a_request_waits_for_others_only_so_long_and_a_heartbeat_never(
    bus: Bus,
) -> None:
    bus.limit(request_percentage=1.0)
    client = Client().peer

    def begin(key: ApiKey, version: int, request: Struct, now: float) -> Any:
        sent = encode_request(key, version, 7, "app", request)
        return admit(bus.quotas, client, memoryview(b"".join(map(bytes, sent)))[4:], key, now)

    asked = ApiKey.API_VERSIONS, 2, ApiVersionsRequest()
    assert begin(*asked, 100.0) is not None
    meter = client.quota.request  # type: ignore[attr-defined]
    meter.charge(1000.0, 100.0)
    for now in (100.0, 101.0, 109.0):
        with pytest.raises(HoldRequest):
            begin(*asked, now)
        assert begin(ApiKey.HEARTBEAT, 4, HeartbeatRequest(), now) is not None
    assert begin(*asked, 111.0) is not None


async def test_the_longest_delay_of_all_quotas_holds(bus: Bus) -> None:
    bus.limit(request_percentage=1e-6, producer_byte_rate=RATE)
    client = Client()
    answer = await bus.produce(client, *[VALUE] * 10)
    assert answer is not None
    assert 3000 <= answer.throttle_time_ms <= 3300


# Evasion


async def test_a_new_connection_waits_its_turn_while_the_quota_is_overdrawn(bus: Bus) -> None:
    bus.limit(producer_byte_rate=RATE)
    await bus.produce(Client(), *[VALUE] * 10)
    second, third = Client(), Client()
    with pytest.raises(HoldRequest) as one:
        await bus.produce(second, *[VALUE] * 10)
    with pytest.raises(HoldRequest) as other:
        await bus.produce(third, *[VALUE] * 10)
    assert one.value.seconds == pytest.approx(3.1, abs=0.3)
    assert other.value.seconds == pytest.approx(3.1 + 4.1, abs=0.4)  # behind the second
    answer = await bus.produce(second, *[VALUE] * 10)  # its time has come
    assert answer is not None
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert answer.throttle_time_ms > 3000


async def test_new_connections_without_end_do_not_make_the_debt_grow_without_end(bus: Bus) -> None:
    bus.limit(producer_byte_rate=RATE)
    await bus.produce(Client(), *[VALUE] * 10)
    waits = []
    for _ in range(100):
        with pytest.raises(HoldRequest) as held:
            await bus.produce(Client(), *[VALUE] * 10)
        waits.append(held.value.seconds)
    assert max(waits) <= LONGEST_HOLD_S
    assert bus.plane.partition("t").log.log_end_offset == 10  # none of them got through


async def test_many_connections_and_client_ids_of_one_user_get_one_quota(bus: Bus) -> None:
    bus.limit(QuotaEntity("alice"), producer_byte_rate=RATE)
    clients = [Client(ALICE) for _ in range(30)]
    taken = 0
    for client in clients:
        try:
            taken += await bus.produce(client, VALUE) is not None
        except HoldRequest:
            continue
    assert taken <= 3  # one burst, and one request


async def test_others_are_unharmed_beside_one_who_uses_too_much(bus: Bus) -> None:
    bus.limit(producer_byte_rate=RATE)
    await bus.produce(Client(ALICE), *[VALUE] * 10)
    for _ in range(10):
        with pytest.raises(HoldRequest):
            await bus.produce(Client(ALICE), *[VALUE] * 10)
    honest = Client(Principal("User", "bob"))
    answer = await bus.produce(honest, VALUE)
    assert answer is not None
    assert answer.throttle_time_ms == 0
    assert honest.mutes == []


# Changes of topics


def charge_of(bus: Bus, client: Client) -> Any:
    sent = encode_request(ApiKey.API_VERSIONS, 3, 7, "app", ApiVersionsRequest())
    frame = memoryview(b"".join(map(bytes, sent)))[4:]
    now = perf_counter()
    of = admit(bus.quotas, client.peer, frame, ApiKey.API_VERSIONS, now)
    assert of is not None
    return Charge(of, client.peer, now)


async def test_a_strict_change_is_refused_while_the_quota_is_overdrawn(bus: Bus) -> None:
    bus.limit(controller_mutation_rate=1.0)
    client = Client()
    charge_of(bus, client).change(10, strict=True)  # whoever owes nothing may
    with pytest.raises(ApiError) as refused:
        charge_of(bus, client).change(1, strict=True)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert "try again in" in str(refused.value)


async def test_a_change_of_a_client_that_does_not_know_is_made_and_slows_it_down(bus: Bus) -> None:
    bus.limit(controller_mutation_rate=1.0)
    client = Client()
    for _ in range(2):
        charge = charge_of(bus, client)
        charge.change(5, strict=False)
        charge.settle_silent()
    assert max(client.mutes) == pytest.approx(8.0, abs=0.2)
    assert bus.quotas.mutation.throttled == 2


async def test_a_change_that_fails_is_not_counted(bus: Bus) -> None:
    bus.limit(controller_mutation_rate=1.0)
    client = Client()
    charge = charge_of(bus, client)
    charge.change(10, strict=True)
    charge.change_back(10)
    charge_of(bus, client).change(1, strict=True)
