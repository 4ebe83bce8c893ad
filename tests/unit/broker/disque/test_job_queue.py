"""What a queue of jobs does when something in the broker fails."""

import asyncio

import pytest

from qbus.broker.disque.job_queue import Delivered
from qbus.jobs import JobId
from qbus.metadata import SessionState
from tests.support.waiting import eventually

from .jobs import Jobs, decoded


class FailsOnce:
    """Where delayed jobs lie; nothing can be noted at first."""

    def __init__(self, delivered: Delivered) -> None:
        self._delivered = delivered
        self.failures = 0

    def note(self, job: JobId, topic_id: bytes, offset: int) -> None:
        if not self.failures:
            self.failures += 1
            raise ValueError("a defect")
        self._delivered.note(job, topic_id, offset)


@pytest.mark.parametrize("retry_s", [60, 0], ids=["at least once", "at most once"])
async def test_a_defect_leaves_no_client_waiting(
    jobs: Jobs, caplog: pytest.LogCaptureFixture, retry_s: int
) -> None:
    await jobs.add(options=f"DELAY 5 RETRY {retry_s}")
    queue = jobs.service.need_queue(b"q")
    broken = queue._delivered = FailsOnce(queue._delivered)
    waiting = jobs.begin("GETJOB FROM q", jobs.new_client())
    other = jobs.begin("GETJOB FROM q", jobs.new_client())
    await jobs.pass_time(6)
    await eventually(lambda: "jobs of the queue q cannot be given out" in caplog.text)
    assert broken.failures == 1
    assert not waiting.done()
    await jobs.add(body="second")
    await jobs.add(body="third")
    for reply, body in ((waiting, "second"), (other, "third")):
        ((_, _, given),) = decoded(await asyncio.wait_for(reply, 10))
        assert given == body


async def test_no_job_is_given_out_while_none_could_be_acknowledged(jobs: Jobs) -> None:
    await jobs.add()
    jobs.plane.store.become(SessionState.SUSPENDED)
    assert await jobs.bodies() == []
    waiting = jobs.begin("GETJOB FROM q", jobs.new_client())
    await asyncio.sleep(0.02)
    assert not waiting.done()
    jobs.plane.store.become(SessionState.CONNECTED)
    ((_, text, body),) = decoded(await asyncio.wait_for(waiting, 10))
    assert body == "body"
    assert await jobs.ask(f"ACKJOB {text}") == 1


async def test_the_end_of_the_broker_ends_the_wait_of_those_for_whom_jobs_are_being_taken(
    jobs: Jobs,
) -> None:
    await jobs.add(options="RETRY 0")
    assert await jobs.ask("PAUSE q out") == "out"
    waiting = [jobs.begin("GETJOB FROM q", jobs.new_client()) for _ in range(3)]
    queue = jobs.service.need_queue(b"q")
    await eventually(lambda: queue.blocked == 3)
    jobs.plane.disk.hold_syncs()
    assert await jobs.ask("PAUSE q none") == "none"
    await eventually(lambda: queue.blocked == 0)
    assert not any(one.done() for one in waiting), "it is not stored yet that one has the job"
    jobs.service.drain()
    for one in waiting:
        assert decoded(await asyncio.wait_for(one, 5)) is None
    jobs.plane.disk.release_syncs()
    await jobs.settled()


@pytest.mark.sources  # a constant is changed
async def test_a_full_disk_lets_no_job_out_that_could_not_be_acknowledged(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbus.broker.queues.gate._RETRY_S", 0.02)
    for body in ("first", "second"):
        await jobs.add(body=body)
    ((_, text, _),) = await jobs.ask("GETJOB FROM q")
    jobs.plane.disk.fill()
    assert "No space left" in str(await jobs.ask(f"ACKJOB {text}"))
    waiting = jobs.begin("GETJOB WITHCOUNTERS FROM q", jobs.new_client())
    for _ in range(3):
        await asyncio.sleep(0.05)
        assert not waiting.done()
    jobs.plane.disk.empty()
    ((_, _, body, *counters),) = decoded(await asyncio.wait_for(waiting, 5))
    assert (body, counters) == ("second", ["nacks", 0, "additional-deliveries", 0])
    assert await jobs.ask(f"ACKJOB {text}") == 1
