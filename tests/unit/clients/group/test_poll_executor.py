"""Turns: background work that waits for a poll."""

import asyncio

import pytest

from qbus.clients.group.poll_executor import PollExecutor


async def test_work_waits_for_a_poll_and_wakes_it() -> None:
    changed, done = asyncio.Event(), []
    executor = PollExecutor(changed)
    task = asyncio.create_task(executor.run_in_poll(lambda: done.append(1)))
    await asyncio.sleep(0.01)
    assert (done, task.done(), changed.is_set()) == ([], False, True)
    await executor.run_pending()
    await task
    assert done == [1]


async def test_what_comes_next_is_done_in_the_same_poll() -> None:
    executor, done = PollExecutor(asyncio.Event()), []

    async def background() -> None:
        for number in range(3):
            await executor.run_in_poll(lambda number=number: done.append(number))  # type: ignore[misc]

    task = asyncio.create_task(background())
    await asyncio.sleep(0)
    await executor.run_pending()
    assert done == [0, 1, 2]
    await task


async def test_a_poll_raises_errors_of_work_and_the_background_task_continues() -> None:
    executor = PollExecutor(asyncio.Event())

    async def fails() -> None:
        raise ValueError("mine")

    task = asyncio.create_task(executor.run_in_poll(fails))
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="mine"):
        await executor.run_pending()
    await task


async def test_nobody_does_the_work_of_a_task_that_is_gone() -> None:
    executor, done = PollExecutor(asyncio.Event()), []
    task = asyncio.create_task(executor.run_in_poll(lambda: done.append(1)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await executor.run_pending()
    assert done == []
