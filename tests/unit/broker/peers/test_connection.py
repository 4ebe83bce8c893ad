"""One connection to another broker: responses in order, and every way it can fail."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from qbus.broker.peers.connection import PeerConnection, PeerError
from qbus.wire import ApiKey
from qbus.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tests.support.fake_leader import FakeLeader
from tests.support.ports import free_port
from tests.support.waiting import eventually

REQUEST = ListOffsetsRequest(replica_id=1, topics=[])


async def open_to(port: int) -> PeerConnection:
    return await PeerConnection.open("127.0.0.1", port, client_id="test", timeout=5, max_frame=1000)


async def test_requests_are_pipelined_and_answered_in_order() -> None:
    async with FakeLeader() as leader:
        connection = await open_to(leader.port)
        responses: list[Any] = []
        for _ in range(5):
            connection.send(ApiKey.LIST_OFFSETS, 7, REQUEST, 5, responses.append)
        assert isinstance(
            await connection.request(ApiKey.LIST_OFFSETS, 7, REQUEST, 5), ListOffsetsResponse
        )
        assert [type(response) for response in responses] == [ListOffsetsResponse] * 5
        connection.abort()


async def test_nothing_listens_at_the_address() -> None:
    with pytest.raises(PeerError, match=r"127\.0\.0\.1:\d+"):
        await open_to(free_port())


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("\0", 9092), ("", 0)])
async def test_an_invalid_address_is_a_peer_error(host: str, port: int) -> None:
    with pytest.raises(PeerError):
        await PeerConnection.open(host, port, client_id="test", timeout=5, max_frame=1000)


async def test_a_late_response_fails_all_outstanding_requests() -> None:
    async with FakeLeader() as leader:
        leader.silent = True
        connection = await open_to(leader.port)
        responses: list[Any] = []
        failed = asyncio.Event()
        connection.on_failure = failed.set
        connection.send(ApiKey.LIST_OFFSETS, 7, REQUEST, 60, responses.append)
        connection.send(ApiKey.LIST_OFFSETS, 7, REQUEST, 0.01, responses.append)
        await failed.wait()
        assert [str(response).partition(": ")[2] for response in responses] == [
            "no response to LIST_OFFSETS in time"
        ] * 2
        with pytest.raises(PeerError):
            connection.send(ApiKey.LIST_OFFSETS, 7, REQUEST, 5, responses.append)
        assert len(responses) == 2


async def test_a_closed_connection_fails_the_outstanding_request() -> None:
    async with FakeLeader() as leader:
        leader.silent = True
        connection = await open_to(leader.port)
        asking = asyncio.create_task(connection.request(ApiKey.LIST_OFFSETS, 7, REQUEST, 5))
        await eventually(lambda: leader.connections)
        leader.hang_up()
        with pytest.raises(PeerError, match=r"clos|reset"):
            await asking


async def test_the_response_to_a_cancelled_request_is_discarded() -> None:
    async with FakeLeader() as leader:
        connection = await open_to(leader.port)
        asking = asyncio.create_task(connection.request(ApiKey.LIST_OFFSETS, 7, REQUEST, 5))
        await asyncio.sleep(0)
        asking.cancel()
        assert await connection.request(ApiKey.LIST_OFFSETS, 7, REQUEST, 5)
        connection.abort()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda frame: frame[:4] + b"\xff" * 4 + frame[8:], "a response to another request"),
        (lambda frame: frame + frame, "a response without a request"),
        (lambda frame: b"\x7f\xff\xff\xff" + frame[4:], "a frame of 2147483647 bytes"),
        (lambda frame: (1001).to_bytes(4, "big") + frame[4:], "a frame of 1001 bytes"),
        (lambda _: b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (lambda frame: (5).to_bytes(4, "big") + frame[4:9], "malformed response"),
    ],
)
async def test_a_malformed_response_closes_the_connection(
    change: Callable[[bytes], bytes], why: str
) -> None:
    async with FakeLeader() as leader:
        leader.mangle = lambda _, frame: change(frame)
        connection = await open_to(leader.port)
        with contextlib.suppress(PeerError):
            await connection.request(ApiKey.LIST_OFFSETS, 7, REQUEST, 5)
        await eventually(lambda: connection.failure is not None)
        assert why in str(connection.failure)
        await eventually(lambda: not leader.open_connections)
