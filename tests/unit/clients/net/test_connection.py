"""A connection: answers in order, versions agreed on, nothing waits for ever."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from qbus.clients import ConnectionFailed, RequestTimedOut, TlsFailed
from qbus.clients.net.connection import Connection
from qbus.errors import ApiError, ErrorCode, WireError
from qbus.wire import ApiKey, encode_response
from qbus.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from qbus.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from qbus.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from qbus.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.fake_broker import FakeBroker, Hangup
from tests.support.waiting import eventually


async def connect(broker: FakeBroker, timeout: float = 5.0) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, "test", timeout)


async def ask(connection: Connection, topic: str = "t", timeout: float = 5.0) -> str | None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    response = await connection.request(ApiKey.METADATA, request, timeout)
    name: str | None = response.topics[0].name
    return name


async def test_pipelined_requests_get_their_own_answers() -> None:
    async with FakeBroker() as broker:
        connection = await connect(broker)
        names = [f"topic-{number}" for number in range(50)]
        assert await asyncio.gather(*(ask(connection, name) for name in names)) == names
        assert [request.topics[0].name for request in broker.asked(ApiKey.METADATA)] == names
        await connection.close()


async def test_the_client_introduces_itself() -> None:
    async with FakeBroker() as broker:
        await (await connect(broker)).close()
        (request,) = broker.asked(ApiKey.API_VERSIONS)
        assert request.client_software_name == "qbus-python"
        assert request.client_software_version


async def test_the_highest_common_version_is_spoken() -> None:
    async with FakeBroker(
        versions={ApiKey.METADATA: (0, 7), ApiKey.API_VERSIONS: (0, 0)}
    ) as broker:
        connection = await connect(broker)
        await ask(connection)
        assert broker.requests[-1][:2] == (ApiKey.METADATA, 7)
        with pytest.raises(ApiError) as caught:
            connection.version(ApiKey.FETCH)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        await connection.close()


@pytest.mark.parametrize(
    ("served", "version"), [((4, 12), 12), ((4, 13), 13), ((4, 18), 16), ((7, 9), 9)]
)
async def test_topics_go_by_their_ids_where_the_broker_knows_them(
    served: tuple[int, int], version: int
) -> None:
    async with FakeBroker(versions={ApiKey.FETCH: served, ApiKey.API_VERSIONS: (0, 0)}) as broker:
        connection = await connect(broker)
        assert connection.version_by_id(ApiKey.FETCH) == version
        assert connection.version(ApiKey.FETCH) == min(version, 12)
        await connection.close()


async def test_a_broker_that_knows_only_old_api_versions_is_asked_again() -> None:
    async with FakeBroker() as broker:
        served = [ApiVersion(api_key=ApiKey.METADATA, min_version=5, max_version=9)]

        def answer(request: ApiVersionsRequest) -> bytes | ApiVersionsResponse:
            if len(broker.requests) > 1:
                assert broker.requests[-1][1] == 0
                return ApiVersionsResponse(api_keys=served)
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=served)
            parts = encode_response(ApiKey.API_VERSIONS, 0, 1, refusal)
            return b"".join(bytes(part) for part in parts)

        broker.handlers[ApiKey.API_VERSIONS] = answer
        connection = await connect(broker)
        assert connection.version(ApiKey.METADATA) == 9
        await connection.close()


async def test_a_large_answer() -> None:
    async with FakeBroker() as broker:
        groups = [ListedGroup(group_id="g" * 1000) for _ in range(2000)]
        broker.handlers[ApiKey.LIST_GROUPS] = lambda _: ListGroupsResponse(groups=groups)
        connection = await connect(broker)
        answers = await asyncio.gather(
            ask(connection),
            connection.request(ApiKey.LIST_GROUPS, ListGroupsRequest(), 5.0),
            ask(connection, "after"),
        )
        assert len(answers[1].groups) == 2000
        assert answers[2] == "after"
        await connection.close()


async def test_no_answer_in_time_closes_the_connection_for_all() -> None:
    async with FakeBroker() as broker:
        connection = await connect(broker)
        broker.handlers[ApiKey.METADATA] = lambda _: asyncio.sleep(60)
        late, behind = await asyncio.gather(
            ask(connection, timeout=0.05), ask(connection, timeout=60.0), return_exceptions=True
        )
        assert isinstance(late, RequestTimedOut)
        assert isinstance(behind, ConnectionFailed)
        assert late.retriable
        assert behind.retriable
        assert not connection.is_open
        with pytest.raises(ConnectionFailed):
            await ask(connection)
        await connection.close()


async def test_a_hang_up_fails_what_is_unanswered() -> None:
    async with FakeBroker() as broker:
        connection = await connect(broker)

        def hang_up(_: object) -> None:
            raise Hangup

        broker.handlers[ApiKey.METADATA] = hang_up
        answers = await asyncio.gather(ask(connection), ask(connection), return_exceptions=True)
        assert all(isinstance(answer, ConnectionFailed) for answer in answers)
        await connection.close()


async def test_a_cancelled_request_does_not_get_the_next_response() -> None:
    async with FakeBroker() as broker:
        connection = await connect(broker)
        first = asyncio.create_task(ask(connection, "first"))
        await asyncio.sleep(0)
        first.cancel()
        assert await ask(connection, "second") == "second"
        await connection.close()


@pytest.mark.parametrize(
    "bad",
    [
        b"\xff\xff\xff\xff",  # a negative length
        b"\x7f\xff\xff\xff",  # two gigabytes
        b"\0\0\0\0",  # no correlation id
        b"\0\0\0\x04\0\0\0\x63",  # another request's
    ],
)
async def test_an_answer_that_is_none_closes_the_connection(bad: bytes) -> None:
    async with FakeBroker() as broker:
        connection = await connect(broker)
        broker.handlers[ApiKey.METADATA] = lambda _: bad
        with pytest.raises(ConnectionFailed):
            await ask(connection)
        assert not connection.is_open
        await connection.close()


async def test_a_malformed_body_is_a_wire_error() -> None:
    async with FakeBroker() as broker:
        connection = await connect(broker)
        broker.handlers[ApiKey.METADATA] = lambda _: b"\0\0\0\x06\0\0\0\x02\xff\xff"
        with pytest.raises(WireError):
            await ask(connection)
        await connection.close()


async def test_an_answer_to_no_request_closes_the_connection() -> None:
    async with FakeBroker() as broker:
        connection = await connect(broker)
        broker.handlers[ApiKey.PRODUCE] = lambda _: b"\0\0\0\x04\0\0\0\x02"
        await connection.send(ApiKey.PRODUCE, ProduceRequest(acks=0))
        await eventually(lambda: not connection.is_open)
        await connection.close()


async def test_a_connection_cut_mid_frame() -> None:
    async with FakeBroker() as broker:
        connection = await connect(broker)

        async def half(_: object) -> bytes:
            asyncio.get_running_loop().call_later(0.01, broker.hangup)
            return b"\0\x10\0\0\0\0\0\x02half of it"

        broker.handlers[ApiKey.METADATA] = half
        with pytest.raises(ConnectionFailed):
            await ask(connection)
        await connection.close()


async def test_a_request_that_nobody_waits_for_still_closes_a_dead_connection() -> None:
    async with FakeBroker() as broker:
        connection = await connect(broker)
        broker.handlers[ApiKey.METADATA] = lambda _: asyncio.sleep(60)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await ask(connection, timeout=0.1)
        assert connection.is_open
        assert connection.load == 1
        await eventually(lambda: not connection.is_open)
        await connection.close()


async def test_a_later_request_may_have_less_time_than_an_earlier_one() -> None:
    async with FakeBroker() as broker:
        connection = await connect(broker)
        broker.handlers[ApiKey.METADATA] = lambda _: asyncio.sleep(60)
        patient, hurried = await asyncio.gather(
            ask(connection, timeout=60.0), ask(connection, timeout=0.05), return_exceptions=True
        )
        assert isinstance(patient, ConnectionFailed)
        assert isinstance(hurried, RequestTimedOut)
        await connection.close()


@asynccontextmanager
async def impostor(greet: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[int]:
    """Somebody who is no broker listens at this port, and greets who comes."""
    greeted: list[asyncio.Task[None]] = []

    async def serve(writer: asyncio.StreamWriter) -> None:
        try:
            await greet(writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeted.append(asyncio.create_task(serve(writer)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*greeted)


async def test_a_response_that_trickles_in_gets_no_extra_time() -> None:
    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0\x10\0\0")
        while not writer.is_closing():
            writer.write(b"x")
            await asyncio.sleep(0.005)

    async with impostor(trickle) as port:
        with pytest.raises(RequestTimedOut):
            await Connection.open("127.0.0.1", port, "test", 0.1)


@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\3\3\0\2\2\x46", b""]
)
async def test_somebody_else_listens(greeting: bytes) -> None:
    async def greet(writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)

    async with impostor(greet) as port:
        with pytest.raises((ConnectionFailed, TlsFailed), match=str(port)):
            await Connection.open("127.0.0.1", port, "test", 5.0)


async def test_nonsense_in_the_first_answer() -> None:
    async with FakeBroker() as broker:
        broker.handlers[ApiKey.API_VERSIONS] = lambda _: b"\0\0\0\x08\0\0\0\x01\0\0\xff\xff"
        with pytest.raises(ConnectionFailed, match="does not respond like a broker"):
            await connect(broker)


def produce(*records: bytes) -> ProduceRequest:
    return ProduceRequest(
        acks=1,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=index, records=data)
                    for index, data in enumerate(records)
                ],
            )
        ],
    )


async def test_large_records_go_out_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    writev = os.writev

    def noted(fd: int, parts: list[bytes]) -> int:
        written.extend(memoryview(part).obj for part in parts)
        return writev(fd, parts)

    async with FakeBroker() as broker:
        broker.handlers[ApiKey.PRODUCE] = lambda _: ProduceResponse()
        connection = await connect(broker)
        monkeypatch.setattr(os, "writev", noted)
        records = bytes(100_000)
        await connection.request(ApiKey.PRODUCE, produce(records), 5.0)
        assert any(part is records for part in written)
        await connection.close()


async def test_data_the_socket_does_not_take_at_once_follows_in_order() -> None:
    async with FakeBroker() as broker:
        broker.handlers[ApiKey.PRODUCE] = lambda _: ProduceResponse()
        connection = await connect(broker)
        records = [bytes([number]) * 700_000 for number in range(30)]
        await asyncio.gather(
            connection.request(ApiKey.PRODUCE, produce(*records), 30.0),
            connection.request(ApiKey.PRODUCE, produce(*records[::-1]), 30.0),
        )
        first, second = broker.asked(ApiKey.PRODUCE)
        for request, sent in ((first, records), (second, records[::-1])):
            (topic,) = request.topic_data
            assert [bytes(part.records) for part in topic.partition_data] == sent
        await connection.close()


async def test_more_parts_than_one_system_call_takes() -> None:
    async with FakeBroker() as broker:
        broker.handlers[ApiKey.PRODUCE] = lambda _: ProduceResponse()
        connection = await connect(broker)
        await connection.request(ApiKey.PRODUCE, produce(*[bytes(2000)] * 1200), 30.0)
        (request,) = broker.asked(ApiKey.PRODUCE)
        assert len(request.topic_data[0].partition_data) == 1200
        await connection.close()


async def test_a_failed_write_fails_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeBroker() as broker:
        connection = await connect(broker)

        def refuse(fd: int, parts: object) -> int:
            raise BrokenPipeError(32, "Broken pipe")

        monkeypatch.setattr(os, "writev", refuse)
        with pytest.raises(ConnectionFailed, match="Broken pipe"):
            await ask(connection)
        assert not connection.is_open
        await connection.close()


async def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectionFailed, match=str(port)):
            await Connection.open("127.0.0.1", port, "test", 5.0)


async def test_a_listener_that_says_nothing() -> None:
    async with FakeBroker() as broker:
        broker.handlers[ApiKey.API_VERSIONS] = lambda _: asyncio.sleep(60)
        with pytest.raises(RequestTimedOut):
            await connect(broker, timeout=0.05)


MUCH = [f"{number:05}" + "x" * 400 for number in range(3000)]
"""Names of topics: a response about them has more than a megabyte."""


def much() -> MetadataRequest:
    """A request for all of them."""
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in MUCH])


async def test_large_and_small_responses_take_turns() -> None:
    async with FakeBroker() as broker:
        connection = await connect(broker)
        for _ in range(3):
            large = connection.request(ApiKey.METADATA, much(), 5.0)
            found, name = await asyncio.gather(large, ask(connection, "t"))
            assert [topic.name for topic in found.topics] == MUCH
            assert name == "t"
        await connection.close()


@pytest.mark.parametrize("left", [1, 100_000, 700_000])
async def test_a_large_response_that_is_cut_fails_at_once(left: int) -> None:
    async with FakeBroker() as broker:
        connection = await connect(broker)
        broker.mangle[ApiKey.METADATA] = lambda data: data[:-left]
        asked = asyncio.create_task(connection.request(ApiKey.METADATA, much(), 60.0))
        await eventually(lambda: bool(broker.asked(ApiKey.METADATA)))
        await asyncio.sleep(0.05)
        broker.hangup()
        with pytest.raises(ConnectionFailed, match=r"closed|reset"):
            await asked
        await connection.close()


async def test_the_rest_of_a_large_response_may_come_late() -> None:
    async with FakeBroker() as broker:
        connection = await connect(broker)
        kept: list[bytes] = []

        def cut(data: bytes) -> bytes:
            kept.append(data[-1:])
            return data[:-1]

        broker.mangle[ApiKey.METADATA] = cut
        asked = asyncio.create_task(connection.request(ApiKey.METADATA, much(), 5.0))
        await eventually(lambda: bool(kept))
        broker.mangle[ApiKey.METADATA] = lambda data: kept[0] + data
        assert await ask(connection, "next") == "next"  # what follows it brings its last byte
        assert len((await asked).topics) == len(MUCH)
        await connection.close()
