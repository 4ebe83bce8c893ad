"""Items come due after their delays, in the event loop's time."""

import asyncio

from qbus.broker.replicator.delay_queue import DelayQueue
from tests.support.waiting import eventually


async def test_items_come_due_later_those_of_a_tick_together() -> None:
    due: list[str] = []
    queue = DelayQueue(due.append)
    loop = asyncio.get_running_loop()
    start = loop.time()
    for name in ("a", "b"):
        queue.add(name, 0.01)
    queue.add("later", 60)
    assert due == []
    await eventually(lambda: due)
    assert due == ["a", "b"]
    assert loop.time() - start >= 0.01
    queue.clear()


async def test_cleared_items_never_come_due() -> None:
    due: list[str] = []
    queue = DelayQueue(due.append)
    queue.add("a", 0)
    queue.clear()
    await asyncio.sleep(0.05)
    assert due == []
