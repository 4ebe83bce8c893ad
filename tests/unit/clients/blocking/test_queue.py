"""The client of a queue without asyncio: the same, from any thread."""

import asyncio
import inspect
import threading
from collections.abc import Callable

from qbus import Queue, aio
from tests.support.fake_broker import FakeBroker
from tests.support.fake_share import FakeShareGroup

ACCEPT = 1


async def with_queue(use: Callable[[Queue], None]) -> FakeShareGroup:
    async with FakeBroker({"q": 1}) as broker:
        group = FakeShareGroup(broker)

        def run() -> None:
            with Queue(broker.bootstrap, "q") as queue:
                use(queue)

        await asyncio.to_thread(run)
        return group


def test_both_faces_have_the_same_arguments() -> None:
    names = [n for n, f in inspect.getmembers(aio.Queue, callable) if n[0] != "_"]
    for name in ("__init__", *names):
        theirs = dict(inspect.signature(getattr(aio.Queue, name)).parameters)
        ours = inspect.signature(getattr(Queue, name)).parameters
        assert dict(ours) == theirs, name


async def test_a_job_from_end_to_end() -> None:
    def use(queue: Queue) -> None:
        assert (queue.name, queue.topic) == ("q", "q")
        job_id = queue.add(b"body")
        job = queue.get(10)
        assert job is not None
        assert (job.id, job.body) == (job_id, b"body")
        queue.ack(job, b"result")

    group = await with_queue(use)
    assert group.said == [("q", 0, 0, ACCEPT, -1, b"result")]


async def test_a_loop_acknowledges_each_job_when_it_asks_for_the_next() -> None:
    def use(queue: Queue) -> None:
        for number in range(3):
            queue.add(b"%d" % number)
        seen = []
        for job in queue:
            seen.append(job.body)
            if len(seen) == 3:
                break
        assert seen == [b"0", b"1", b"2"]

    assert (await with_queue(use)).offsets(ACCEPT) == [0, 1]


async def test_threads_share_a_queue() -> None:
    done: list[bytes] = []

    def use(queue: Queue) -> None:
        for number in range(20):
            queue.add(b"%d" % number)

        def work() -> None:
            while (job := queue.get(0.3)) is not None:
                done.append(job.body)
                queue.ack(job)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    group = await with_queue(use)
    assert sorted(done) == sorted(b"%d" % number for number in range(20))
    assert len(group.offsets(ACCEPT)) == 20
