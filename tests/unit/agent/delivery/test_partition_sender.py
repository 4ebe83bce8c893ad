"""A partition's sender: files in turn, at most a batch in flight, in order whatever is refused."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from qbus.agent.delivery.partition_sender import PartitionSender
from qbus.agent.delivery.pending_batch import MemoryBudget, PendingBatch
from qbus.agent.tailing.file import Chunk
from qbus.clock import Clock, SystemClock
from qbus.errors import ApiError, ErrorCode
from qbus.service.token_bucket import RateLimit
from tests.support.waiting import eventually

BATCH = 10_000


class Sent:
    """What a producer's delivery is to a sender."""

    def __init__(self, count: int = 0) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count = count
        self._failed: dict[int, Exception] = {}
        self.trouble: Exception | None = None

    def _trouble(self) -> Exception | None:
        return self.trouble

    def settle(self, error: Exception | None = None, **failures: Exception) -> None:
        """``failures``: why some records failed, by ``at_`` and their numbers; else all did."""
        self._failed = {int(at.removeprefix("at_")): why for at, why in failures.items()}
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)

    def exception(self, timeout: float) -> BaseException | None:
        return self._future.exception()

    def _failures(self) -> dict[int, Exception]:
        error = self._future.exception()
        assert isinstance(error, Exception)
        return self._failed or dict.fromkeys(range(self._count), error)

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        self._future.add_done_callback(lambda _: callback(self))

    def __await__(self) -> Any:
        return self._future.__await__()


class Context:
    """Files that have so many lines each, and a broker that the test plays."""

    def __init__(self, sends_at_once: bool) -> None:
        self.budget = MemoryBudget(1 << 20)
        self.clock: Clock = SystemClock()
        self.rate_limit = RateLimit(0, self.clock.monotonic())
        self.batch_bytes = BATCH
        self.sent: list[tuple[list[bytes], Sent]] = []
        self.arrived: list[bytes] = []
        self.refusals = 0
        self.counted = 0
        self.kept: list[bytes] = []
        self.full_disk: list[OSError] = []
        self.reads = 0
        self.says_last = False
        self.batches: list[PendingBatch] = []
        self.sends_at_once = sends_at_once
        self.tasks: list[asyncio.Task[None]] = []

    def file(self, name: bytes, lines: int) -> Any:
        return SimpleNamespace(name=name, left=lines, at=0, labels=None)

    def read_chunk(self, file: Any, most: int) -> Chunk | None:
        count = min(file.left, max(1, most // 100))
        if not count:
            self.reads += 1
            return None
        values = [b"%b %d" % (file.name, file.at + index) for index in range(count)]
        start = file.at * 100
        file.at += count
        file.left -= count
        self.reads += 1
        is_last = self.says_last and not file.left
        return Chunk(file, 0, start, start + count * 100, (0, 0), values, None, is_last)

    async def send(self, topic: str, partition: int, batch: PendingBatch) -> Any:
        await asyncio.sleep(0)
        return self._sent(batch)

    def send_now(self, topic: str, partition: int, batch: PendingBatch) -> Any:
        return self._sent(batch) if self.sends_at_once else None

    def _sent(self, batch: PendingBatch) -> Sent:
        sent = Sent(len(batch.values))
        self.sent.append((list(batch.values), sent))
        return sent

    def soon(self, sender: PartitionSender) -> None:
        asyncio.get_running_loop().call_soon(sender.go_on)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def set_aside(self, topic: str, batch: PendingBatch, index: int, why: Exception) -> None:
        if self.full_disk:
            raise self.full_disk.pop()
        self.kept.append(batch.values[index])

    def delivered(self, sender: PartitionSender, batch: PendingBatch) -> None:
        self.arrived += batch.values
        self.counted += len(batch)
        self.batches.append(batch)

    async def refused(self, topic: str, error: Exception) -> None:
        self.refusals += 1


@pytest.fixture(params=[True, False], ids=["at once", "later"])
async def context(request: pytest.FixtureRequest) -> AsyncIterator[Context]:
    """What senders share; the producer takes batches at once, or after a wait."""
    context = Context(request.param)
    yield context
    for task in context.tasks:
        task.cancel()
    for ended in await asyncio.gather(*context.tasks, return_exceptions=True):
        assert ended is None or isinstance(ended, asyncio.CancelledError)


@pytest.fixture
def sender(context: Context) -> PartitionSender:
    return PartitionSender("lines", 0, context)


async def settle(context: Context, sender: PartitionSender) -> None:
    """Acknowledge and write down everything until nothing more is sent."""
    handled = 0
    while handled < len(context.sent):
        context.sent[handled][1].settle()
        handled += 1
        await asyncio.sleep(0.001)
        while context.batches:
            sender.release(context.batches.pop(0))
        await asyncio.sleep(0.001)


async def test_no_more_than_a_batch_is_in_flight(context: Context, sender: PartitionSender) -> None:
    sender.add(context.file(b"a", 1000))
    await eventually(lambda: len(context.sent) == 2)
    assert sender.outstanding == BATCH
    context.sent[0][1].settle()
    await asyncio.sleep(0.01)
    assert len(context.sent) == 2, "the delivery of the first half is not checkpointed yet"
    sender.release(context.batches.pop())
    await eventually(lambda: len(context.sent) == 3)


async def test_why_records_wait_is_known_while_the_producer_tries_again(
    context: Context, sender: PartitionSender
) -> None:
    """It tries for as long as it takes: an outage of hours is no failed delivery."""
    sender.add(context.file(b"a", 10))
    await eventually(lambda: len(context.sent) == 1)
    (_, sent) = context.sent[0]
    told = [sender.trouble]
    sent.trouble = ApiError(ErrorCode.NETWORK_EXCEPTION, "the broker cannot be reached")
    told.append(sender.trouble)
    sent.settle()
    await eventually(lambda: len(context.batches) == 1)
    assert [*told, sender.trouble] == [None, sent.trouble, None]


async def test_files_take_turns_and_each_stays_in_order(
    context: Context, sender: PartitionSender
) -> None:
    sender.add(context.file(b"huge", 1000))
    sender.add(context.file(b"small", 3))
    await eventually(lambda: len(context.sent) == 2)
    assert any(value.startswith(b"small") for value in context.sent[1][0])
    await settle(context, sender)
    assert [value for value in context.arrived if value.startswith(b"huge")] == [
        b"huge %d" % index for index in range(1000)
    ]
    assert len(context.arrived) == 1003


async def test_a_file_is_not_read_again_after_its_last_lines_until_it_is_added(
    context: Context, sender: PartitionSender
) -> None:
    context.says_last = True
    file = context.file(b"a", 3)
    sender.add(file)
    await eventually(lambda: len(context.sent) == 1)
    await settle(context, sender)
    assert context.reads == 1
    file.left = 2
    sender.add(file)
    await eventually(lambda: len(context.sent) == 2)
    assert context.sent[1][0] == [b"a 3", b"a 4"]


async def test_nothing_is_read_without_memory(context: Context, sender: PartitionSender) -> None:
    context.budget.used = context.budget.limit
    sender.add(context.file(b"a", 10))
    await asyncio.sleep(0.01)
    assert not context.sent
    context.budget.used = 0
    sender.wake()
    await eventually(lambda: context.sent)


async def test_refused_batches_are_resent_before_new_ones(
    context: Context, sender: PartitionSender
) -> None:
    sender.add(context.file(b"a", 150))
    await eventually(lambda: len(context.sent) == 2)
    refusal = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    context.sent[0][1].settle(refusal)
    context.sent[1][1].settle(ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    await eventually(lambda: len(context.sent) == 3)
    assert sender.error is not None
    assert context.sent[2][0] == context.sent[0][0]
    context.sent[2][1].settle()
    await eventually(lambda: len(context.sent) == 4)
    assert context.sent[3][0] == context.sent[1][0]
    context.sent[3][1].settle()
    await eventually(lambda: len(context.arrived) == 100)
    for batch in context.batches:
        sender.release(batch)
    await eventually(lambda: len(context.sent) == 5)
    context.sent[4][1].settle()
    await eventually(lambda: len(context.arrived) == 150)
    assert context.arrived == [b"a %d" % index for index in range(150)]
    assert context.refusals == 2


async def test_a_rate_limit_delays_reading_and_ends_by_itself(
    context: Context, sender: PartitionSender
) -> None:
    context.rate_limit = RateLimit(100_000, context.clock.monotonic(), burst_s=0.01)
    sender.add(context.file(b"a", 60))
    await eventually(lambda: context.sent)
    assert len(context.sent[0][0]) == 50
    await eventually(lambda: len(context.sent) == 2)
    assert len(context.sent[1][0]) == 10


TOO_LARGE = ApiError(ErrorCode.MESSAGE_TOO_LARGE)


async def test_records_that_are_too_large_are_set_aside_and_no_other_is_sent_again(
    context: Context, sender: PartitionSender
) -> None:
    sender.add(context.file(b"a", 10))
    await eventually(lambda: len(context.sent) == 1)
    context.sent[0][1].settle(TOO_LARGE, at_3=TOO_LARGE, at_7=TOO_LARGE)
    await eventually(lambda: len(context.batches) == 1)
    assert context.kept == [b"a 3", b"a 7"]
    assert len(context.sent) == 1, "the eight others are stored"
    assert context.counted == 8
    assert sender.error is None
    assert context.refusals == 0


async def test_only_records_that_are_not_stored_are_sent_again(
    context: Context, sender: PartitionSender
) -> None:
    sender.add(context.file(b"a", 10))
    await eventually(lambda: len(context.sent) == 1)
    away = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    context.sent[0][1].settle(TOO_LARGE, at_3=TOO_LARGE, at_5=away, at_6=away)
    await eventually(lambda: len(context.sent) == 2)
    assert context.kept == [b"a 3"]
    assert context.sent[1][0] == [b"a 5", b"a 6"]
    context.sent[1][1].settle(TOO_LARGE, at_0=TOO_LARGE)
    await eventually(lambda: len(context.batches) == 1)
    assert context.kept == [b"a 3", b"a 5"]
    assert context.counted == 8


async def test_a_record_waits_that_cannot_be_set_aside(
    context: Context, sender: PartitionSender
) -> None:
    context.full_disk = [OSError(28, "No space left on device", "damaged")]
    sender.add(context.file(b"a", 2))
    await eventually(lambda: len(context.sent) == 1)
    context.sent[0][1].settle(TOO_LARGE, at_0=TOO_LARGE)
    await eventually(lambda: sender.error is not None)
    assert "No space left on device" in str(sender.error)
    await eventually(lambda: len(context.batches) == 1)
    assert context.kept == [b"a 0"]
    assert sender.error is None
