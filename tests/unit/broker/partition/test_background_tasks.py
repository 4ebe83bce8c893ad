"""Work from time to time: each task on its own, with its last error."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from qbus.broker.partition.background_tasks import BackgroundTasks
from tests.support.waiting import eventually


@pytest.fixture
async def tasks() -> AsyncIterator[BackgroundTasks]:
    tasks = BackgroundTasks()
    yield tasks
    await tasks.stop()


class Work:
    """Counts its runs, and fails as long as it is told to."""

    def __init__(self) -> None:
        self.runs = 0
        self.error: Exception | None = None
        self.thread: threading.Thread | None = None

    def __call__(self) -> None:
        self.runs += 1
        self.thread = threading.current_thread()
        if self.error is not None:
            raise self.error


async def test_a_task_runs_again_and_again_from_the_start_on(tasks: BackgroundTasks) -> None:
    work = Work()
    tasks.add("work", 0.001, work)
    await asyncio.sleep(0.01)
    assert work.runs == 0
    tasks.start()
    await eventually(lambda: work.runs > 2)


async def test_a_task_may_come_after_the_start(tasks: BackgroundTasks) -> None:
    work = Work()
    tasks.start()
    tasks.add("late", 0.001, work)
    await eventually(lambda: work.runs > 1)
    assert [task.name for task in tasks] == ["late"]


async def test_a_failure_is_kept_and_the_task_runs_on(
    tasks: BackgroundTasks, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work()
    work.error = ValueError("a defect")
    task = tasks.add("fragile", 0.001, work)
    tasks.start()
    await eventually(lambda: work.runs > 1 and task.last_error is work.error)
    assert "background task 'fragile' failed" in caplog.text
    work.error = None
    await eventually(lambda: task.last_error is None)
    assert tasks["fragile"].runs >= 2


async def test_the_trouble_of_one_task_delays_no_other(tasks: BackgroundTasks) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    work = Work()
    tasks.add("hanging", 0.001, hang)
    tasks.add("work", 0.001, work)
    tasks.start()
    await eventually(lambda: work.runs > 2)


async def test_what_waits_for_disks_runs_in_a_thread(tasks: BackgroundTasks) -> None:
    work = Work()
    tasks.add_threaded("disk", 0.001, work)
    tasks.start()
    await eventually(lambda: work.runs > 1)
    assert work.thread is not threading.main_thread()


async def test_nothing_runs_after_the_stop() -> None:
    tasks = BackgroundTasks()
    work = Work()
    tasks.add("work", 0.001, work)
    tasks.start()
    await eventually(lambda: work.runs > 0)
    await tasks.stop()
    runs = work.runs
    await asyncio.sleep(0.01)
    assert work.runs == runs


async def test_a_name_is_given_once(tasks: BackgroundTasks) -> None:
    tasks.add("work", 1.0, Work())
    with pytest.raises(ValueError, match="there is a background task 'work' already"):
        tasks.add("work", 1.0, Work())
