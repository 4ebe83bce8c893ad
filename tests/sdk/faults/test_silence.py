"""Nobody waits in silence: within seconds the log says for what, and why."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from qbus.aio import Admin, Consumer, Producer
from qbus.clients import ConnectionFailed
from tests.sdk.conftest import with_qbus
from tests.support.ports import free_port

SOON_S = 5.0


async def said(caplog: pytest.LogCaptureFixture, *words: str) -> str:
    """The first line of the log with all ``words``; it has to come soon."""
    deadline = time.monotonic() + SOON_S
    while True:
        for message in caplog.messages:
            if all(word in message for word in words):
                return message
        assert time.monotonic() < deadline, f"nothing of {words} in {caplog.messages}"
        await asyncio.sleep(0.05)


@pytest.fixture(autouse=True)
def warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


async def consume(bootstrap: str, topic: str, group: str | None = None) -> None:
    async with Consumer(bootstrap, group=group) as consumer:
        consumer.subscribe([topic])
        while True:
            await consumer.poll(0.2)


async def produce(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send(topic, b"x")


async def list_topics(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.list_topics()


@contextlib.asynccontextmanager
async def running(coroutine: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(coroutine)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


CALLS: dict[str, Callable[[str], Coroutine[Any, Any, None]]] = {
    "poll": lambda bootstrap: consume(bootstrap, "t"),
    "poll in a group": lambda bootstrap: consume(bootstrap, "t", "g"),
    "send": lambda bootstrap: produce(bootstrap, "t"),
    "admin": list_topics,
}


@pytest.mark.parametrize("call", CALLS)
async def test_nobody_listens_at_the_port(call: str, caplog: pytest.LogCaptureFixture) -> None:
    bootstrap = f"127.0.0.1:{free_port()}"
    async with running(CALLS[call](bootstrap)):
        await said(caplog, f"broker {bootstrap}", "Connection refused", "trying again")


@pytest.mark.parametrize("call", CALLS)
async def test_a_web_server_listens_there(
    call: str, http_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap = f"127.0.0.1:{http_port}"
    async with running(CALLS[call](bootstrap)):
        await said(caplog, f"broker {bootstrap}", "speaks HTTP, not Kafka's protocol")


@pytest.mark.parametrize("call", CALLS)
async def test_the_port_accepts_and_never_answers(
    call: str, silent_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap = f"127.0.0.1:{silent_port}"
    async with running(CALLS[call](bootstrap)):
        await said(caplog, f"broker {bootstrap}", "does not answer")


@with_qbus
@pytest.mark.parametrize("group", [None, "waits"])
async def test_the_topic_does_not_exist(
    bootstrap: str, name: str, group: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(consume(bootstrap, name, group)):
        await said(caplog, name, "UNKNOWN_TOPIC_OR_PARTITION")


@with_qbus
async def test_the_topic_is_deleted_meanwhile(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(consume(bootstrap, topic)), Admin(bootstrap) as admin:
        await asyncio.sleep(0.5)
        await admin.delete_topics([topic])
        await said(caplog, topic, "UNKNOWN_TOPIC_OR_PARTITION")


async def test_a_call_that_waits_ends_with_an_error_that_names_the_broker() -> None:
    port = free_port()
    async with Admin(f"127.0.0.1:{port}", request_timeout_ms=1000) as admin:
        with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port}: Connection refused"):
            await admin.list_topics()
