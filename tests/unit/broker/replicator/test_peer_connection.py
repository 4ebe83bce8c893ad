"""Requests to another broker, and what becomes of them."""

import asyncio
from typing import Any

import pytest

from qbus.broker.replicator.peer_connection import PeerConnection, PeerFailed
from qbus.wire import ApiKey
from qbus.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tests.support.eventually import eventually
from tests.support.fake_leader import FakeLeader
from tests.support.ports import free_port

REQUEST = ListOffsetsRequest(replica_id=1, topics=[])


async def open_to(port: int) -> PeerConnection:
    return await PeerConnection.open("127.0.0.1", port, client_id="test", timeout=5, max_frame=1000)


async def test_requests_go_out_at_once_and_are_answered_in_their_order() -> None:
    async with FakeLeader() as leader:
        connection = await open_to(leader.port)
        answers: list[Any] = []
        for _ in range(5):
            connection.send(ApiKey.LIST_OFFSETS, 7, REQUEST, 5, answers.append)
        assert isinstance(
            await connection.ask(ApiKey.LIST_OFFSETS, 7, REQUEST, 5), ListOffsetsResponse
        )
        assert [type(answer) for answer in answers] == [ListOffsetsResponse] * 5
        connection.abort()


async def test_nobody_there_is_said() -> None:
    with pytest.raises(PeerFailed, match=r"127\.0\.0\.1:\d+"):
        await open_to(free_port())


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("\0", 9092), ("", 0)])
async def test_an_address_that_is_none_is_a_failure_like_others(host: str, port: int) -> None:
    with pytest.raises(PeerFailed):
        await PeerConnection.open(host, port, client_id="test", timeout=5, max_frame=1000)


async def test_all_who_wait_are_told_when_one_answer_is_late() -> None:
    async with FakeLeader() as leader:
        leader.silent = True
        connection = await open_to(leader.port)
        answers: list[Any] = []
        failed = asyncio.Event()
        connection.on_failure = failed.set
        connection.send(ApiKey.LIST_OFFSETS, 7, REQUEST, 60, answers.append)
        connection.send(ApiKey.LIST_OFFSETS, 7, REQUEST, 0.01, answers.append)
        await failed.wait()
        assert [str(answer).partition(": ")[2] for answer in answers] == [
            "no answer to LIST_OFFSETS in time"
        ] * 2
        with pytest.raises(PeerFailed):
            connection.send(ApiKey.LIST_OFFSETS, 7, REQUEST, 5, answers.append)
        assert len(answers) == 2


async def test_one_who_asks_hears_that_the_connection_is_closed() -> None:
    async with FakeLeader() as leader:
        leader.silent = True
        connection = await open_to(leader.port)
        asking = asyncio.create_task(connection.ask(ApiKey.LIST_OFFSETS, 7, REQUEST, 5))
        await eventually(lambda: leader.connections)
        leader.hang_up()
        with pytest.raises(PeerFailed, match=r"clos|reset"):
            await asking


async def test_an_answer_that_nobody_waits_for_any_more_is_no_trouble() -> None:
    async with FakeLeader() as leader:
        connection = await open_to(leader.port)
        asking = asyncio.create_task(connection.ask(ApiKey.LIST_OFFSETS, 7, REQUEST, 5))
        await asyncio.sleep(0)
        asking.cancel()
        assert await connection.ask(ApiKey.LIST_OFFSETS, 7, REQUEST, 5)
        connection.abort()
