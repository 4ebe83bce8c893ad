"""Flushes run in threads, a bounded number at once, and report to the event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from qbus.broker.partition import flusher as module
from qbus.broker.partition.flusher import FlushThreads
from tests.support.waiting import eventually


@pytest.fixture
async def flusher() -> AsyncIterator[FlushThreads]:
    flusher = FlushThreads(asyncio.get_running_loop(), threads=2)
    yield flusher
    await flusher.stop()


def threads() -> int:
    return sum(thread.name == "qbus-flush" for thread in threading.enumerate())


async def flushed(flusher: FlushThreads, flush: Callable[[], int]) -> int | BaseException:
    done: asyncio.Future[int | BaseException] = asyncio.get_running_loop().create_future()
    flusher.submit(flush, done.set_result)
    return await done


async def test_the_result_comes_back_to_the_event_loop(flusher: FlushThreads) -> None:
    ran_in: list[threading.Thread] = []

    def flush() -> int:
        ran_in.append(threading.current_thread())
        return 42

    assert await flushed(flusher, flush) == 42
    assert ran_in[0] is not threading.main_thread()


async def test_an_error_is_a_result_too(flusher: FlushThreads) -> None:
    def flush() -> int:
        raise OSError(5, "Input/output error")

    assert isinstance(await flushed(flusher, flush), OSError)
    assert await flushed(flusher, lambda: 7) == 7  # the thread lives on


class TestWithoutThreads:
    """The system allows no more of them."""

    @pytest.fixture
    def refuse(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
        start, refused = threading.Thread.start, [False]

        def start_or_refuse(thread: threading.Thread) -> None:
            if refused[0] and thread.name == "qbus-flush":
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_or_refuse)
        return partial(refused.__setitem__, 0)

    async def test_those_that_run_do_the_work(
        self, flusher: FlushThreads, refuse: Callable[[bool], None]
    ) -> None:
        assert await flushed(flusher, lambda: 1) == 1
        refuse(True)
        assert await asyncio.gather(
            *(flushed(flusher, partial(int, number)) for number in range(3))
        ) == [0, 1, 2]
        assert threads() == 1

    async def test_flushes_wait_for_the_first_one(
        self,
        flusher: FlushThreads,
        refuse: Callable[[bool], None],
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(module, "_AGAIN_S", 0.01)
        refuse(True)
        waiting = [asyncio.ensure_future(flushed(flusher, partial(int, n))) for n in range(2)]
        await eventually(lambda: len(caplog.messages) > 2)
        assert "nothing is flushed" in caplog.messages[0]
        assert not any(one.done() for one in waiting)
        refuse(False)
        assert await asyncio.gather(*waiting) == [0, 1]


async def test_flushes_overlap_up_to_the_number_of_threads(flusher: FlushThreads) -> None:
    loop = asyncio.get_running_loop()
    gate, running = threading.Semaphore(0), threading.Semaphore(0)
    done = [loop.create_future() for _ in range(5)]

    def flush() -> int:
        running.release()
        assert gate.acquire(timeout=10)
        return 0

    for future in done:
        flusher.submit(flush, future.set_result)
    for _ in range(2):
        assert await asyncio.to_thread(running.acquire, timeout=10)
    assert threads() == 2
    assert not await asyncio.to_thread(running.acquire, timeout=0.05)
    for _ in done:
        gate.release()
    await asyncio.gather(*done)


async def test_no_thread_is_started_before_the_first_flush(flusher: FlushThreads) -> None:
    assert threads() == 0
    await flushed(flusher, lambda: 0)
    await flushed(flusher, lambda: 0)
    assert threads() == 1  # the second found the first thread free


async def test_stopping_finishes_what_was_submitted_and_ends_the_threads() -> None:
    flusher = FlushThreads(asyncio.get_running_loop(), threads=1)
    results: list[int | BaseException] = []
    for number in range(3):
        flusher.submit(partial(int, number), results.append)
    await flusher.stop()
    assert results == [0, 1, 2]
    assert threads() == 0


async def test_stopping_finishes_what_the_last_flushes_lead_to() -> None:
    """More was appended while a flush was under way, which takes another one, or several."""
    flusher = FlushThreads(asyncio.get_running_loop(), threads=3)
    gate = threading.Event()
    results: list[int | BaseException] = []

    def first_done(result: int | BaseException) -> None:
        results.append(result)
        for number in (2, 3, 4):
            flusher.submit(partial(int, number), results.append)

    def held() -> int:
        assert gate.wait(10)
        return 1

    flusher.submit(held, first_done)
    stopping = asyncio.ensure_future(flusher.stop())
    await asyncio.sleep(0)
    gate.set()
    async with asyncio.timeout(10):
        await stopping
    assert sorted(map(str, results)) == ["1", "2", "3", "4"]
    assert threads() == 0


async def test_a_failing_report_does_not_keep_it_from_stopping() -> None:
    loop = asyncio.get_running_loop()
    reported: list[str] = []
    loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
    flusher = FlushThreads(loop, threads=1)

    def fail(_: int | BaseException) -> None:
        raise RuntimeError("whatever")

    flusher.submit(lambda: 0, fail)
    async with asyncio.timeout(10):
        await flusher.stop()
    assert reported == ["whatever"]


async def test_nothing_is_begun_once_it_is_stopped() -> None:
    flusher = FlushThreads(asyncio.get_running_loop())
    await flusher.stop()
    flusher.submit(lambda: 0, print)
    assert threads() == 0
