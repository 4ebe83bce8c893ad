"""Jobs for queues that are idle, and about to be deleted: none is refused, and none is lost."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.partition.partition import Partition
from tests.support.resp_client import ReplyError

from .jobs import Jobs

REASON = "its queue is idle"


async def paused_queue(jobs: Jobs) -> Partition:
    """A queue whose job is done, and that takes no more for now."""
    job = await jobs.add()
    await jobs.bodies()
    assert await jobs.ask(f"ACKJOB {job}") == 1
    await jobs.settled()
    partition = jobs.partition()
    partition.pause_appends(REASON)
    return partition


async def test_a_job_has_its_queue_stay(jobs: Jobs) -> None:
    partition = await paused_queue(jobs)

    async def resume() -> None:
        partition.resume_appends(REASON)

    jobs.on_reclaim = resume
    await jobs.add(body="next")
    assert jobs.reclaimed == [partition]
    assert await jobs.bodies() == ["next"]
    assert len(jobs.controller.created) == 1


async def test_one_that_comes_too_late_has_its_queue_created_again(jobs: Jobs) -> None:
    await paused_queue(jobs)

    async def delete() -> None:
        await jobs.plane.metadata.remove("q")

    jobs.on_reclaim = delete
    await jobs.add(body="next")
    assert len(jobs.controller.created) == 2
    assert await jobs.bodies() == ["next"]


async def test_many_that_come_too_late_share_the_new_queue(jobs: Jobs) -> None:
    await paused_queue(jobs)

    async def delete() -> None:
        if "q" in jobs.plane.metadata.topics and len(jobs.controller.created) == 1:
            await jobs.plane.metadata.remove("q")

    jobs.on_reclaim = delete
    await asyncio.gather(*(jobs.add(body=f"{number}") for number in range(50)))
    assert len(jobs.controller.created) == 2
    assert sorted(await jobs.bodies(), key=int) == [str(number) for number in range(50)]


async def test_one_whose_time_is_up_first_is_refused_as_disque_does(jobs: Jobs) -> None:
    await paused_queue(jobs)
    reply = await jobs.ask("ADDJOB q body 50")
    assert isinstance(reply, ReplyError)
    assert str(reply).startswith("NOREPL")


async def test_a_worker_that_waited_gets_the_job_of_the_new_queue(jobs: Jobs) -> None:
    await paused_queue(jobs)
    waiting = jobs.begin("GETJOB FROM q", jobs.new_client())
    await jobs.plane.metadata.remove("q")
    job = await jobs.add(body="next")
    assert job.encode() in await asyncio.wait_for(waiting, 20)


class TestUse:
    async def test_a_worker_that_waits(self, jobs: Jobs) -> None:
        await jobs.add()
        await jobs.bodies()
        assert not jobs.service.is_used(jobs.partition())
        waiting = jobs.begin("GETJOB FROM q", jobs.new_client())
        assert jobs.service.is_used(jobs.partition())
        waiting.cancel()
        assert not jobs.service.is_used(jobs.partition())

    async def test_a_pause(self, jobs: Jobs) -> None:
        await jobs.add()
        assert await jobs.ask("PAUSE q in") == "in"
        assert jobs.service.is_used(jobs.partition())
        await jobs.ask("PAUSE q none")
        assert not jobs.service.is_used(jobs.partition())

    async def test_a_job_that_is_appended_at_the_end_of_the_tick(self, jobs: Jobs) -> None:
        """A look in the same tick must not pause the partition before the job is appended."""
        await jobs.add()
        adding = jobs.begin("ADDJOB q next 0")
        assert jobs.service.is_used(jobs.partition())
        await adding
        assert not jobs.service.is_used(jobs.partition())


@pytest.fixture
async def lasting(tmp_path: Path) -> AsyncIterator[Jobs]:
    """A node where queues have no idle time-out."""
    made = Jobs(tmp_path, disque_queue_idle_ms=-1)
    await made.start()
    yield made
    await made.stop()


async def test_without_a_time_out_queues_are_created_without_one(lasting: Jobs) -> None:
    await lasting.add()
    (made,) = lasting.controller.created
    assert "qbus.queue.idle.ms" not in made.config
