"""From a frame to a handler and back."""

import asyncio
import errno
import logging
import time
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest

from qbus.broker.kafka.dispatch import Dispatcher, PendingReply
from qbus.broker.kafka.handlers import delete_records, fetch, heartbeat, produce
from qbus.broker.metrics import Metrics
from qbus.broker.net.connection import CloseConnection
from qbus.broker.net.peer import Peer
from qbus.broker.partition.purgatory import Delayed
from qbus.broker.quotas import ClientQuotas
from qbus.broker.turns import next_turn
from qbus.config import ListenerInfo
from qbus.errors import ApiError, ErrorCode, WireError
from qbus.metadata.client_quotas import DEFAULT, QuotaEntity
from qbus.service.descriptors import shortages
from qbus.service.event_loop import SlowHandlers, Ticks
from qbus.wire import ApiKey, Struct, decode_response
from qbus.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from qbus.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from qbus.wire.messages.produce import ProduceRequest
from tests.support.raw_client import frame
from tests.support.waiting import eventually

PEER = Peer(1, "127.0.0.1", ListenerInfo.plaintext("127.0.0.1", 9092))


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def dispatcher(metrics: Metrics) -> Dispatcher:
    broker: Any = SimpleNamespace(metrics=metrics, quotas=ClientQuotas())
    return Dispatcher(broker)


def ask(dispatcher: Dispatcher, key: ApiKey, version: int, request: Struct) -> Any:
    return dispatcher(PEER, memoryview(frame(key, version, request, 7))[4:])


def heartbeats(monkeypatch: pytest.MonkeyPatch, handle: Any) -> None:
    monkeypatch.setattr(heartbeat, "handle", handle)


def answer_of(parts: Any) -> Any:
    correlation, response = decode_response(
        ApiKey.HEARTBEAT, 4, b"".join(bytes(part) for part in parts)[4:]
    )
    assert correlation == 7
    return response


def test_want_of_descriptors_is_answered_with_an_error_that_passes(
    dispatcher: Dispatcher, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handle(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    heartbeats(monkeypatch, handle)
    before = shortages.count
    answer = answer_of(ask(dispatcher, ApiKey.HEARTBEAT, 4, HeartbeatRequest()))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert ApiError(ErrorCode(answer.error_code)).retriable
    assert (shortages.count, metrics.requests.failures) == (before + 1, 0)


def test_a_plain_handler_is_answered_at_once(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def handle(_broker: Any, context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        seen.append((context.client_id, context.api_version, context.client_host, request.group_id))
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)

    heartbeats(monkeypatch, handle)
    parts = ask(dispatcher, ApiKey.HEARTBEAT, 4, HeartbeatRequest(group_id="g"))
    assert answer_of(parts).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert seen == [("raw", 4, "127.0.0.1", "g")]


def test_a_handler_may_close_the_connection(
    dispatcher: Dispatcher, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handle(*_: Any) -> HeartbeatResponse:
        raise CloseConnection("ask another broker")

    heartbeats(monkeypatch, handle)
    with pytest.raises(CloseConnection, match="another"):
        ask(dispatcher, ApiKey.HEARTBEAT, 4, HeartbeatRequest())
    assert metrics.requests.failures == 0


async def test_a_coroutine_is_exclusive_and_answered_later(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handle(*_: Any) -> HeartbeatResponse:
        await asyncio.sleep(0)
        return HeartbeatResponse()

    heartbeats(monkeypatch, handle)
    reply = ask(dispatcher, ApiKey.HEARTBEAT, 4, HeartbeatRequest())
    assert isinstance(reply, PendingReply)
    assert reply.exclusive
    called = asyncio.Event()
    reply.on_done(called.set)
    await called.wait()
    assert answer_of(reply.result()).error_code == ErrorCode.NONE


async def test_a_delayed_answer_lets_later_requests_go_on(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    delayed: Delayed[HeartbeatResponse] = Delayed(asyncio.get_running_loop())
    heartbeats(monkeypatch, lambda *_: delayed)
    reply = ask(dispatcher, ApiKey.HEARTBEAT, 4, HeartbeatRequest())
    assert isinstance(reply, PendingReply)
    assert not reply.exclusive
    assert not reply.done()
    reply.cancel()
    assert delayed.cancelled()
    with pytest.raises(CloseConnection):
        reply.result()


async def test_long_requests_that_wait_for_followers_do_not_keep_them_from_fetching(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_fetched = asyncio.Event()

    async def delete(*_: Any) -> DeleteRecordsResponse:
        await has_fetched.wait()
        return DeleteRecordsResponse()

    def fetch_(*_: Any) -> FetchResponse:
        has_fetched.set()
        return FetchResponse()

    monkeypatch.setattr(delete_records, "handle", delete)
    monkeypatch.setattr(fetch, "handle", fetch_)
    deleted = [DeleteRecordsPartition(partition_index=index) for index in range(5000)]
    deleting = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=deleted)])
    fetched = [FetchPartition(partition=index) for index in range(5000)]
    fetching = FetchRequest(topics=[FetchTopic(topic="t", partitions=fetched)])
    replies = [ask(dispatcher, ApiKey.DELETE_RECORDS, 2, deleting) for _ in range(20)]
    await next_turn()
    replies.append(ask(dispatcher, ApiKey.FETCH, 12, fetching))
    for reply in replies:
        await eventually(reply.done)
        assert reply.result()


def test_an_api_error_becomes_the_answer(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch, metrics: Metrics
) -> None:
    def handle(*_: Any) -> None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    heartbeats(monkeypatch, handle)
    parts = ask(dispatcher, ApiKey.HEARTBEAT, 4, HeartbeatRequest())
    assert answer_of(parts).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert metrics.requests.failures == 0


@pytest.mark.parametrize("later", [False, True])
async def test_a_defect_is_logged_counted_and_answered(
    dispatcher: Dispatcher,
    monkeypatch: pytest.MonkeyPatch,
    metrics: Metrics,
    caplog: pytest.LogCaptureFixture,
    *,
    later: bool,
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a defect")

    async def fail_later(*_: Any) -> None:
        fail()

    heartbeats(monkeypatch, fail_later if later else fail)
    with caplog.at_level(logging.ERROR):
        reply = ask(dispatcher, ApiKey.HEARTBEAT, 4, HeartbeatRequest())
        if later:
            done = asyncio.Event()
            reply.on_done(done.set)
            await done.wait()
            reply = reply.result()
    assert answer_of(reply).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert metrics.requests.failures == 1
    assert "a defect" in caplog.text


@pytest.mark.parametrize("later", [False, True])
async def test_a_response_that_cannot_be_written_closes_the_connection(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch, metrics: Metrics, *, later: bool
) -> None:
    delayed: Delayed[HeartbeatResponse] = Delayed(asyncio.get_running_loop())
    delayed.answer(HeartbeatResponse(error_code=1 << 20))
    heartbeats(monkeypatch, lambda *_: delayed if later else delayed.result())
    with pytest.raises(CloseConnection):
        ask(dispatcher, ApiKey.HEARTBEAT, 4, HeartbeatRequest()).result()
    assert metrics.requests.failures == 1


def test_an_error_that_the_response_has_no_room_for_closes_the_connection(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handle(*_: Any) -> None:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    monkeypatch.setattr(produce, "handle", handle)
    with pytest.raises(CloseConnection):
        ask(dispatcher, ApiKey.PRODUCE, 9, ProduceRequest())


def test_a_request_may_go_without_answer(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch, metrics: Metrics
) -> None:
    monkeypatch.setattr(produce, "handle", lambda *_: None)
    assert ask(dispatcher, ApiKey.PRODUCE, 9, ProduceRequest()) is None
    assert sum(metrics.requests.counts[ApiKey.PRODUCE]) == 1


@pytest.mark.parametrize(
    "request_frame",
    [
        pytest.param(b"\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff", id="unknown API"),
        pytest.param(b"\x00\x0c\x00\x63\x00\x00\x00\x01\xff\xff", id="unknown version"),
    ],
)
def test_what_has_no_form_closes_the_connection(
    dispatcher: Dispatcher, request_frame: bytes
) -> None:
    with pytest.raises(CloseConnection):
        dispatcher(PEER, memoryview(request_frame))


@pytest.mark.parametrize("size", [0, 1])
def test_a_request_without_a_key_is_a_wire_error(metrics: Metrics, size: int) -> None:
    quotas = ClientQuotas()
    quotas.set_quotas({QuotaEntity(DEFAULT): {"request_percentage": 100.0}})
    for used in (ClientQuotas(), quotas):
        broker: Any = SimpleNamespace(metrics=metrics, quotas=used)
        with pytest.raises(WireError):
            Dispatcher(broker)(PEER, memoryview(bytes(size)))


def test_a_malformed_body_is_a_wire_error(dispatcher: Dispatcher) -> None:
    with pytest.raises(WireError):
        dispatcher(PEER, memoryview(b"\x00\x0c\x00\x00\x00\x00\x00\x01\xff\xff\x7f\xff"))


# The time that requests hold the event loop for


@pytest.fixture
def slow() -> SlowHandlers:
    return SlowHandlers(Ticks(0.01))


@pytest.fixture
def timed(metrics: Metrics, slow: SlowHandlers) -> Dispatcher:
    broker: Any = SimpleNamespace(metrics=metrics, quotas=ClientQuotas())
    return Dispatcher(broker, slow=slow)


def test_a_request_that_holds_the_loop_for_too_long_is_counted_and_logged_with_its_client(
    timed: Dispatcher,
    slow: SlowHandlers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handle(*_: Any) -> HeartbeatResponse:
        time.sleep(0.02)
        return HeartbeatResponse()

    heartbeats(monkeypatch, handle)
    ask(timed, ApiKey.HEARTBEAT, 4, HeartbeatRequest())
    assert slow.counts == {"HEARTBEAT": 1}
    assert slow.ticks.current is None
    assert "HEARTBEAT of 127.0.0.1 (client 'raw', User:ANONYMOUS) held the event loop" in (
        caplog.text
    )


def test_so_is_one_that_fails(
    timed: Dispatcher, slow: SlowHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handle(*_: Any) -> HeartbeatResponse:
        time.sleep(0.02)
        raise CloseConnection("ask another broker")

    heartbeats(monkeypatch, handle)
    with pytest.raises(CloseConnection):
        ask(timed, ApiKey.HEARTBEAT, 4, HeartbeatRequest())
    assert slow.counts == {"HEARTBEAT": 1}


async def test_a_coroutine_is_charged_for_the_steps_that_hold_the_loop_and_not_for_its_waits(
    timed: Dispatcher, slow: SlowHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handle(_broker: Any, _context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        await asyncio.sleep(0.05)
        assert slow.ticks.current is PEER
        assert slow.ticks.current_key == ApiKey.HEARTBEAT
        if request.group_id == "slow":
            time.sleep(0.02)  # noqa: ASYNC251 - it holds the loop
        await asyncio.sleep(0.05)
        return HeartbeatResponse()

    heartbeats(monkeypatch, handle)
    for group, counts in (("quick", {}), ("slow", {"HEARTBEAT": 1})):
        reply = ask(timed, ApiKey.HEARTBEAT, 4, HeartbeatRequest(group_id=group))
        done = asyncio.Event()
        reply.on_done(done.set)
        await done.wait()
        assert answer_of(reply.result()).error_code == ErrorCode.NONE
        assert slow.counts == counts


def test_the_lease_is_checked_before_a_request_is_begun(
    timed: Dispatcher, slow: SlowHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def handle(*_: Any) -> HeartbeatResponse:
        order.append("handled")
        return HeartbeatResponse()

    heartbeats(monkeypatch, handle)
    slow.ticks.number, slow.ticks.began = 1, perf_counter() - 60.0  # a callback before it was slow
    slow.ticks.lease(6.0, lambda _: order.append("lapsed"))
    ask(timed, ApiKey.HEARTBEAT, 4, HeartbeatRequest())
    ask(timed, ApiKey.HEARTBEAT, 4, HeartbeatRequest())
    assert order == ["lapsed", "handled", "handled"]
