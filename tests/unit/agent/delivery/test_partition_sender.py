"""A lane: files in turn, at most a batch on its way, and in order whatever is refused."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from qbus.agent.delivery.limits import Budget, RateLimiter
from qbus.agent.delivery.partition_sender import Lane
from qbus.agent.delivery.pending_batch import PendingBatch
from qbus.agent.tailing.chunk import Chunk
from qbus.clock import Clock, SystemClock
from qbus.errors import ApiError, ErrorCode
from tests.support.eventually import eventually

BATCH = 10_000


class Sent:
    """What a producer's delivery is to a lane."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, error: Exception | None = None) -> None:
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)

    def exception(self, timeout: float) -> BaseException | None:
        return self._future.exception()

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        self._future.add_done_callback(lambda _: callback(self))

    def __await__(self) -> Any:
        return self._future.__await__()


class Port:
    """Files that have so many lines each, and a broker that the test plays."""

    def __init__(self) -> None:
        self.budget = Budget(1 << 20)
        self.limiter = RateLimiter(0)
        self.clock: Clock = SystemClock()
        self.batch_bytes = BATCH
        self.sent: list[tuple[list[bytes], Sent]] = []
        self.arrived: list[bytes] = []
        self.refusals = 0
        self.parcels: list[PendingBatch] = []

    def file(self, name: bytes, lines: int) -> Any:
        return SimpleNamespace(name=name, left=lines, at=0, labels=None)

    def take(self, file: Any, most: int) -> Chunk | None:
        count = min(file.left, max(1, most // 100))
        if not count:
            return None
        values = [b"%b %d" % (file.name, file.at + index) for index in range(count)]
        start = file.at * 100
        file.at += count
        file.left -= count
        return Chunk(file, 0, start, start + count * 100, (0, 0), values, None)

    async def send(self, topic: str, partition: int, parcel: PendingBatch) -> Any:
        sent = Sent()
        self.sent.append((list(parcel.values), sent))
        return sent

    def delivered(self, lane: Lane, parcel: PendingBatch) -> None:
        self.arrived += parcel.values
        self.parcels.append(parcel)

    async def refused(self, topic: str, error: Exception) -> None:
        self.refusals += 1


@asynccontextmanager
async def running(port: Port) -> AsyncIterator[Lane]:
    lane = Lane("lines", 0, port)
    task = asyncio.create_task(lane.run())
    yield lane
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def settle(port: Port, lane: Lane) -> None:
    """Acknowledge and write down everything until nothing more is sent."""
    handled = 0
    while handled < len(port.sent):
        port.sent[handled][1].settle()
        handled += 1
        await asyncio.sleep(0.001)
        while port.parcels:
            lane.release(port.parcels.pop(0))
        await asyncio.sleep(0.001)


async def test_no_more_than_a_batch_is_on_its_way() -> None:
    port = Port()
    async with running(port) as lane:
        lane.add(port.file(b"a", 1000))
        await eventually(lambda: len(port.sent) == 2)
        assert lane.outstanding == BATCH
        port.sent[0][1].settle()
        await asyncio.sleep(0.01)
        assert len(port.sent) == 2, "it is not written down yet that the first half was delivered"
        lane.release(port.parcels.pop())
        await eventually(lambda: len(port.sent) == 3)


async def test_files_take_turns_and_each_stays_in_order() -> None:
    port = Port()
    async with running(port) as lane:
        lane.add(port.file(b"huge", 1000))
        lane.add(port.file(b"small", 3))
        await eventually(lambda: len(port.sent) == 2)
        assert any(value.startswith(b"small") for value in port.sent[1][0])
        await settle(port, lane)
    assert [value for value in port.arrived if value.startswith(b"huge")] == [
        b"huge %d" % index for index in range(1000)
    ]
    assert len(port.arrived) == 1003


async def test_nothing_is_read_where_there_is_no_memory() -> None:
    port = Port()
    port.budget.used = port.budget.limit
    async with running(port) as lane:
        lane.add(port.file(b"a", 10))
        await asyncio.sleep(0.01)
        assert not port.sent
        port.budget.used = 0
        lane.wake()
        await eventually(lambda: port.sent)


async def test_what_is_refused_is_sent_again_before_anything_new() -> None:
    port = Port()
    async with running(port) as lane:
        lane.add(port.file(b"a", 150))
        await eventually(lambda: len(port.sent) == 2)
        refusal = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        port.sent[0][1].settle(refusal)
        port.sent[1][1].settle(ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        await eventually(lambda: len(port.sent) == 3)
        assert lane.error is not None
        assert port.sent[2][0] == port.sent[0][0]
        port.sent[2][1].settle()
        await eventually(lambda: len(port.sent) == 4)
        assert port.sent[3][0] == port.sent[1][0]
        port.sent[3][1].settle()
        await eventually(lambda: len(port.arrived) == 100)
        for parcel in port.parcels:
            lane.release(parcel)
        await eventually(lambda: len(port.sent) == 5)
        port.sent[4][1].settle()
        await eventually(lambda: len(port.arrived) == 150)
    assert port.arrived == [b"a %d" % index for index in range(150)]
    assert port.refusals == 2
