"""The thread behind sync clients: it serves every thread but its own, and hangs nobody."""

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from qbus.clients import ClientClosed, RequestTimedOut
from qbus.clients.blocking.loop import LoopThread
from qbus.errors import ApiError, ErrorCode, QbusError


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread("test")
    yield thread
    thread.close()


async def answer(value: object) -> object:
    await asyncio.sleep(0)
    return value


def test_what_a_coroutine_returns_is_returned(thread: LoopThread) -> None:
    assert thread.run(answer(7)) == 7
    assert thread.call(threading.get_ident) != threading.get_ident()


def test_what_it_raises_is_raised(thread: LoopThread) -> None:
    async def refuse() -> None:
        raise ApiError(ErrorCode.INVALID_CONFIG)

    async def give_up() -> None:
        raise TimeoutError("its own")

    with pytest.raises(ApiError, match="INVALID_CONFIG"):
        thread.run(refuse())
    with pytest.raises(TimeoutError, match="its own"):
        thread.run(give_up(), timeout=60)


def test_an_exit_is_that_of_the_thread_that_waits(thread: LoopThread) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit, match="3"):
        thread.run(leave())
    assert thread.run(answer("goes on")) == "goes on"


def test_many_threads_at_once(thread: LoopThread) -> None:
    answers: list[object] = []
    asking = [
        threading.Thread(target=lambda n=n: answers.append(thread.run(answer(n))))
        for n in range(20)
    ]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    assert sorted(map(str, answers)) == sorted(map(str, range(20)))


def test_what_is_not_done_in_time_is_cancelled(thread: LoopThread) -> None:
    cancelled = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    with pytest.raises(RequestTimedOut):
        thread.run(forever(), timeout=0.01)
    assert cancelled.wait(5)
    assert thread.run(answer("goes on")) == "goes on"


def test_a_posted_function_is_not_waited_for(thread: LoopThread) -> None:
    called = threading.Event()
    thread.post(called.set)
    assert called.wait(5)


def test_a_callback_that_would_wait_for_itself_is_told_so(thread: LoopThread) -> None:
    def callback() -> None:
        assert thread.is_current
        thread.run(answer(1))

    with pytest.raises(QbusError, match="callback"):
        thread.call(callback)
    assert not thread.is_current


def test_a_callback_may_call_what_does_not_wait(thread: LoopThread) -> None:
    assert thread.call(lambda: thread.call(threading.get_ident)) == thread.call(threading.get_ident)


def test_a_thread_that_is_closed_meanwhile(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread.close()
    monkeypatch.setattr(LoopThread, "check_usable", lambda _: None)
    with pytest.raises(ClientClosed):
        thread.post(print)
    with pytest.raises(ClientClosed):
        thread.run(answer(1))


def test_close_cancels_what_runs_and_may_be_repeated() -> None:
    thread = LoopThread("test")
    ended: list[str] = []
    running: list[object] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cleanly")

    thread.call(lambda: running.append(asyncio.ensure_future(forever())))
    thread.run(answer(None))
    thread.close()
    thread.close()
    assert ended == ["cleanly"]
    assert thread.loop.is_closed()
    with pytest.raises(QbusError, match="closed"):
        thread.run(answer(1))
    with pytest.raises(QbusError, match="closed"):
        thread.post(print)


def test_a_waiting_thread_is_released_by_close() -> None:
    thread = LoopThread("test")
    outcome: list[QbusError] = []

    def wait() -> None:
        try:
            thread.run(asyncio.sleep(3600))
        except QbusError as error:
            outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not thread.call(lambda: len(asyncio.all_tasks()) > 1):
        time.sleep(0.001)
    thread.close()
    waiting.join(5)
    assert not waiting.is_alive()
    assert str(outcome[0]) == "the client is closed"


def test_a_forgotten_thread_ends() -> None:
    thread = LoopThread("forgotten")
    gone = weakref.ref(thread)
    loop = thread.loop
    del thread
    gc.collect()
    assert gone() is None
    assert loop.is_closed()


def test_a_forgotten_client_does_not_hang_the_exit() -> None:
    code = (
        "import asyncio\n"
        "from qbus.clients.blocking.loop import LoopThread\n"
        "kept = []\n"
        "thread = LoopThread('forgotten')\n"
        "thread.post(lambda: kept.append(asyncio.ensure_future(asyncio.sleep(3600))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", code], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_work_for_other_threads_is_done_at_the_exit_too() -> None:
    """The interpreter starts no threads any more then: spools and names need them otherwise."""
    code = """
        import asyncio, atexit
        from qbus.clients.blocking.loop import LoopThread

        thread = LoopThread("last")

        def fail():
            raise ValueError("its own")

        async def last():
            print(await asyncio.to_thread(len, "abc"))
            print(len(await asyncio.get_running_loop().getaddrinfo("localhost", 1)) > 0)
            try:
                await asyncio.to_thread(fail)
            except ValueError as error:
                print(error)

        atexit.register(lambda: thread.run(last()))
        atexit.register(lambda: thread.run(last()))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == (b"3\nTrue\nits own\n" * 2, b"")


def test_work_for_other_threads_is_refused_once_it_is_closed(thread: LoopThread) -> None:
    async def close_executor() -> None:
        await asyncio.get_running_loop().shutdown_default_executor()
        await asyncio.to_thread(len, "abc")

    with pytest.raises(RuntimeError, match="Executor shutdown"):
        thread.run(close_executor())


def test_its_last_work_ends_it(thread: LoopThread, caplog: pytest.LogCaptureFixture) -> None:
    async def last() -> None:
        left_over.append(asyncio.ensure_future(clean_up()))
        await asyncio.sleep(0)

    cleaned_up: list[bool] = []
    left_over: list[asyncio.Future[None]] = []

    async def clean_up() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            cleaned_up.append(True)

    thread.finish(last)
    thread.join()
    assert thread.is_closed
    assert cleaned_up
    with pytest.raises(ClientClosed):
        thread.run(answer(1))
    assert caplog.messages == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told_to_make_its_own(thread: LoopThread) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            thread.run(answer(1), timeout=5)
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        thread.close()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert told.startswith(f"QbusError: the client belongs to process {os.getpid()}")
    assert thread.run(answer("parent")) == "parent"


@pytest.mark.skipif(sys.platform != "linux", reason="no epoll")
def test_a_busy_thread_gives_way_while_something_waits_for_the_loop(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeps: list[float] = []
    monkeypatch.setattr("qbus.clients.blocking.loop.time.sleep", sleeps.append)
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        over.wait(10)

    thread.post(work)
    assert begun.wait(10)
    thread.give_way()  # the loop has not read yet what woke it
    assert len(sleeps) == 1
    over.set()
    while thread.call(lambda: None) is None and sleeps:
        sleeps.clear()
        thread.give_way()
    assert sleeps == [], "and goes on at once where there is nothing"


def test_a_thread_goes_on_where_nothing_tells_what_has_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on systems without epoll, and where gevent has removed it."""
    monkeypatch.delattr("selectors.EpollSelector", raising=False)
    thread = LoopThread("test")
    thread.give_way()
    assert thread.run(answer(7)) == 7
    thread.close()
