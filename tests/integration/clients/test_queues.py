"""One job, two wires: what one adds the other takes, under the same id."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from qbus.aio import Queue
from qbus.clients import JobGivenUp
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.resp_client import RespClient
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """A broker's address, and its port for Disque's commands."""
    port = free_port()
    directory: Path = tmp_path_factory.mktemp("queues")
    with BrokerProcess(directory, "--disque-listen", f"127.0.0.1:{port}") as broker:
        yield broker.bootstrap, port


@pytest.fixture
def disque(ports: tuple[str, int]) -> Iterator[RespClient]:
    with RespClient(ports[1]) as client:
        yield client


@pytest_asyncio.fixture
async def queue(ports: tuple[str, int], request: pytest.FixtureRequest) -> AsyncIterator[Queue]:
    async with Queue(ports[0], request.function.__name__) as queue:
        yield queue


async def test_added_by_the_sdk_and_taken_by_a_command(queue: Queue, disque: RespClient) -> None:
    job_id = await queue.add(b"body", retry="1m", ttl="1h")
    waiting = asyncio.create_task(queue.wait(job_id))
    name = queue.name
    (found,) = await asyncio.to_thread(disque, "GETJOB", "TIMEOUT", 5000, "FROM", name)
    assert found == [name, job_id, "body"]
    shown = await asyncio.to_thread(disque, "SHOW", job_id)
    known = dict(zip(shown[::2], shown[1::2], strict=True))
    assert (known["state"], known["retry"]) == ("active", 60)
    assert 3500 < known["ttl"] <= 3600
    assert await asyncio.to_thread(disque, "ACKJOB", job_id, "RESULT", "42") == 1
    assert await asyncio.wait_for(waiting, 10) == b"42"
    assert await queue.get(0.5) is None


async def test_added_by_a_command_and_taken_by_the_sdk(queue: Queue, disque: RespClient) -> None:
    added = ("ADDJOB", queue.name, "body", 5000, "RETRY", 60, "TTL", 3600)
    job_id = await asyncio.to_thread(disque, *added)
    job = await queue.get(10)
    assert job is not None
    assert (job.id, job.body, job.retry, job.deliveries) == (job_id, b"body", 60, 1)
    await queue.ack(job, b"done")
    assert await queue.wait(job_id, timeout=10) == b"done"
    assert await asyncio.to_thread(disque, "WAITJOB", job_id, 5000) == "done"
    assert await asyncio.to_thread(disque, "QLEN", queue.name) == 0


async def test_given_back_over_one_and_taken_over_the_other(
    queue: Queue, disque: RespClient
) -> None:
    job_id = await queue.add(b"body")
    job = await queue.get(10)
    assert job is not None
    await queue.nack(job, delay=0)
    (found,) = await asyncio.to_thread(disque, "GETJOB", "TIMEOUT", 5000, "FROM", queue.name)
    assert found[1] == job_id
    assert await asyncio.to_thread(disque, "NACK", job_id) == 1

    async def comes_again() -> bool:
        again = await queue.get(1.0)
        if again is None:
            return False
        assert (again.id, again.deliveries) == (job_id, 3)
        await queue.ack(again)
        return True

    await eventually(comes_again, 30)


async def test_delayed_jobs_have_one_id(queue: Queue, disque: RespClient) -> None:
    ours = await queue.add(b"ours", delay="1s")
    added = ("ADDJOB", queue.name, "theirs", 5000, "DELAY", 1)
    theirs = await asyncio.to_thread(disque, *added)
    found: dict[bytes, str] = {}
    async with asyncio.timeout(20):
        while len(found) < 2:
            job = await queue.get(5)
            if job is not None:
                found[job.body] = job.id
                await queue.ack(job, job.body.upper())
    assert found == {b"ours": ours, b"theirs": theirs}
    assert await queue.wait(ours, timeout=10) == b"OURS"
    assert await asyncio.to_thread(disque, "WAITJOB", theirs, 5000) == "THEIRS"


async def test_a_job_at_most_once(queue: Queue, disque: RespClient) -> None:
    job_id = await queue.add(b"body", retry=0)
    (found,) = await asyncio.to_thread(disque, "GETJOB", "TIMEOUT", 5000, "FROM", queue.name)
    assert found[1] == job_id
    assert await queue.get(1.0) is None


async def test_a_deleted_job_is_over(queue: Queue, disque: RespClient) -> None:
    job_id = await queue.add(b"body")
    waiting = asyncio.create_task(queue.wait(job_id, timeout=20))
    assert await asyncio.to_thread(disque, "DELJOB", job_id) == 1
    assert await waiting is None
    rejected = await queue.add(b"body")
    waiting = asyncio.create_task(queue.wait(rejected, timeout=20))
    job = await queue.get(10)
    assert job is not None
    await queue.reject(job)
    with pytest.raises(JobGivenUp):
        await waiting
