"""Every call of the SDK x every state in which a partition is not served: the log says so in time.

A call either raises within its time-out or goes on waiting, and within 5 s the log of its client
has named the partition.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from qbus.aio import Admin, Consumer, Producer, Queue, ShareConsumer
from qbus.clients.types import LATEST
from qbus.errors import ErrorCode
from qbus.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.fake_broker import NODE, FakeBroker
from tests.support.fake_share import FakeShareGroup

SOON_S = 5.0
Call = Callable[[str], Coroutine[Any, Any, None]]
PLACE = ("t", 0)


class Unserved(FakeBroker):
    """A broker with the topic t, whose only partition it does not serve."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__({"t": 1})
        self.code = code
        if code is ErrorCode.LEADER_NOT_AVAILABLE:
            self.leaders[PLACE] = -1
        self.is_served = False
        self.refused = asyncio.Event()

    def refusal(self, topic: str, partition: int, leader_epoch: int = -1) -> ErrorCode:
        if self.is_served:
            return ErrorCode.NONE
        self.refused.set()
        return self.code

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        response = super().metadata(request)
        for topic in response.topics:
            for part in topic.partitions:
                part.replica_nodes = [NODE]
                part.offline_replicas = [NODE] if part.leader_id < 0 else []
        return response


async def send(bootstrap: str) -> None:
    async with Producer(bootstrap, client_id="send", delivery_timeout_ms=4000) as producer:
        await producer.send("t", b"x")


async def poll(bootstrap: str) -> None:
    async with Consumer(bootstrap, client_id="poll") as consumer:
        consumer.assign([(*PLACE, 0)])
        while True:
            assert not await consumer.poll()


async def iterate(bootstrap: str) -> None:
    async with Consumer(bootstrap, client_id="iterate", offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        async for _ in consumer:
            raise AssertionError("there is nothing to read")


async def in_a_group(bootstrap: str) -> None:
    async with Consumer(bootstrap, client_id="in_a_group", group="g") as consumer:
        consumer.assign([(*PLACE, None)])
        while True:
            assert not await consumer.poll()


def consuming(name: str, call: Callable[[Any], Awaitable[Any]]) -> Call:
    async def run(bootstrap: str) -> None:
        async with Consumer(bootstrap, client_id=name) as consumer:
            await call(consumer)

    run.__name__ = name
    return run


def administering(name: str, call: Callable[[Any], Awaitable[Any]]) -> Call:
    async def run(bootstrap: str) -> None:
        async with Admin(bootstrap, client_id=name) as admin:
            await call(admin)

    run.__name__ = name
    return run


async def share(bootstrap: str) -> None:
    async with ShareConsumer(bootstrap, "g", ["t"], client_id="share") as consumer:
        while True:
            assert not await consumer.poll()


async def queue_get(bootstrap: str) -> None:
    async with Queue(bootstrap, "t", client_id="queue_get") as queue:
        while True:
            assert await queue.get() is None


async def queue_add(bootstrap: str) -> None:
    async with Queue(bootstrap, "t", client_id="queue_add", request_timeout_ms=4000) as queue:
        await queue.add(b"x")


CALLS: list[Call] = [
    send,
    poll,
    iterate,
    in_a_group,
    consuming("end_offsets", lambda c: c.end_offsets([PLACE])),
    consuming("beginning_offsets", lambda c: c.beginning_offsets([PLACE])),
    consuming("offsets_for_times", lambda c: c.offsets_for_times({PLACE: 5})),
    administering("list_offsets", lambda a: a.list_offsets({PLACE: LATEST})),
    administering("reset_group_offsets", lambda a: a.reset_group_offsets("g", [PLACE])),
    administering("group_offsets", lambda a: a.group_offsets("g", [PLACE])),
    share,
    queue_get,
    queue_add,
]
FOR_LEADERS = [
    administering("delete_records", lambda a: a.delete_records({PLACE: LATEST})),
    administering("describe_producers", lambda a: a.describe_producers([PLACE])),
    administering("describe_delayed", lambda a: a.describe_delayed([PLACE])),
    administering("describe_queues", lambda a: a.describe_queues("g", [PLACE])),
    administering("read_delayed", lambda a: a.read_delayed(*PLACE, 0)),
]
"""More of those that ask leaders by the same function, which a fake broker does not serve."""


class Said(logging.Handler):
    """Which clients said that they wait for the partition, and which have it again."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.waiting: dict[str, str] = {}
        self.over: set[str] = set()
        self.changed = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        client, _, rest = line.partition(" ")
        if rest.startswith("waits for t-0: "):
            self.waiting.setdefault(client, rest)
        elif rest.startswith("has t-0 again"):
            self.over.add(client)
        self.changed.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(SOON_S):
            while not is_so():
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
def said() -> Iterator[Said]:
    handler = Said()
    log = logging.getLogger("qbus.clients.net.trouble")
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)
    log.setLevel(level)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, "cannot use the disk or the data directory"),
        (ErrorCode.LEADER_NOT_AVAILABLE, "t-0 has no leader now: offline on broker 1"),
    ],
)
async def test_every_call_says_what_it_waits_for(said: Said, code: ErrorCode, why: str) -> None:
    has_leader = code is ErrorCode.KAFKA_STORAGE_ERROR
    all_calls = CALLS if has_leader else CALLS + FOR_LEADERS
    names = {call.__name__ for call in all_calls}
    async with Unserved(code) as broker:
        FakeShareGroup(broker)
        calls = [asyncio.create_task(call(broker.bootstrap)) for call in all_calls]
        try:
            await said.until(lambda: said.waiting.keys() >= names)
            assert not any(call.done() for call in calls), "they wait: it may come back"
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
    assert {name for name in names if why not in said.waiting[name]} == set()


async def test_what_comes_back_is_said_too(said: Said) -> None:
    async with Unserved(ErrorCode.KAFKA_STORAGE_ERROR) as broker:
        call = asyncio.create_task(send(broker.bootstrap))
        await said.until(lambda: "send" in said.waiting)
        broker.is_served = True
        await call
        assert said.over == {"send"}


async def test_a_takeover_within_a_second_is_silent(said: Said) -> None:
    async with Unserved(ErrorCode.KAFKA_STORAGE_ERROR) as broker:
        call = asyncio.create_task(send(broker.bootstrap))
        await broker.refused.wait()
        broker.is_served = True
        await call
    assert said.waiting == {}
