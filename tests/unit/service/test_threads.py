import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import pytest

from qbus.service.threads import CANNOT_START, Threads


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Says whether the system allows more threads."""
    start, refused = threading.Thread.start, [False]

    def start_or_refuse(thread: threading.Thread) -> None:
        if refused[0]:
            raise RuntimeError(CANNOT_START)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_refuse)
    return partial(refused.__setitem__, 0)


def test_work_is_done_by_the_threads_that_there_are(
    refuse: Callable[[bool], None], caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    with Threads(4, "work") as pool:
        refuse(True)
        waiting: list[Future[int]] = [pool.submit(gate.wait, 10)]
        waiting += [pool.submit(int, number) for number in range(5)]
        gate.set()
        assert [one.result(10) for one in waiting] == [True, *range(5)]
        (line,) = caplog.messages
        assert line.startswith("work goes on with 1 threads: can't start new thread")
        assert "ulimit -u" in line
        refuse(False)
        names = {pool.submit(threading.current_thread).result(10).name}
        assert all(name.startswith("work") for name in names)


def test_without_any_it_cannot_be_made(refuse: Callable[[bool], None]) -> None:
    refuse(True)
    with pytest.raises(RuntimeError, match=CANNOT_START):
        Threads(4, "work")
