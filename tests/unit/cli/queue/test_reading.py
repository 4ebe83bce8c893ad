"""`qbus queue stat`, `peek` and `redrive`: what they read, and what they print."""

import click
import pytest
from rich.console import Console, RenderableType

from qbus.cli.failures import Failure
from qbus.cli.queue.peeking import OffsetRanges, peek_jobs
from qbus.cli.queue.redriving import redrive_letters
from qbus.cli.queue.tables import jobs_table, queues_table
from qbus.cli.queue.topics import read_queues, topic_of
from qbus.cli.targets import Target
from qbus.clients import Admin
from qbus.errors import ErrorCode
from qbus.records import build_batch, iter_records

from .fake_queue import FakeQueue, fake_queue

STATE = {"start_offset": 2, "length": 7, "in_flight": 1, "delayed": 3, "oldest_ms": 65_000}
COUNTS = {"taken": 20, "acknowledged": 10, "released": 4, "timeouts": 2, "dead_letters": 1}


def shown(renderable: RenderableType) -> list[list[str]]:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(renderable)
    return [line.split() for line in capture.get().splitlines()]


async def test_queues_by_name() -> None:
    async with fake_queue({"q": 2, "t": 1}) as fake:
        fake.states["q", 0] = {**STATE, **COUNTS}
        fake.states["q", 1] = {**STATE, "oldest_ms": 700_000}
        async with Admin(fake.broker.bootstrap) as admin:
            (found,) = await read_queues(admin, ["q"], "disque")
            assert (found["queue"], found["topic"], found["group"]) == ("q", "q", "disque")
            assert (found["length"], found["in_flight"], found["delayed"]) == (14, 2, 6)
            assert (found["oldest_ms"], found["taken"]) == (700_000, 20)
            assert [one["partition"] for one in found["partitions"]] == [0, 1]
            (other,) = await read_queues(admin, ["t"], "disque")
            assert (other["oldest_ms"], other["partitions"][0]["start_offset"]) == (None, None)
            assert (other["length"], other["delayed"]) == (0, 0)
            fake.states["t", 0] = {"start_offset": -1, "length": 2, "delayed": 1}
            (other,) = await read_queues(admin, ["t"], "disque")
            assert (other["length"], other["delayed"]) == (2, 1), "before the group has begun"
            del fake.states["t", 0]
            assert await read_queues(admin, [], "disque") == [found]
        assert shown(queues_table([found]))[-1] == [
            *("q", "14", "2", "6", "0", "12", "min", "20", "10", "4", "2", "1")
        ]
        assert "name a QUEUE" in str(queues_table([]))


def fill(fake: FakeQueue) -> None:
    """Jobs 0 to 4 and 8 to 9; 0, 2 and 3 are done, and 4 of another group."""
    fake.store(*(b"%d" % number for number in range(5)))
    fake.done(0, 0)
    fake.done(2, 3)
    fake.done(4, 4, group="others")
    fake.store(b"8\n 8", b"9", timestamp=7000)
    fake.states["q", 0] = {"start_offset": 1}


@pytest.mark.parametrize(
    ("limit", "newest", "bodies"),
    [
        (10, False, ["1", "4", "8\n 8", "9"]),
        (2, False, ["1", "4"]),
        (3, True, ["8\n 8", "9", "4"]),
        (1, True, ["9"]),
    ],
)
async def test_jobs_that_are_not_done(limit: int, newest: bool, bodies: list[str]) -> None:
    async with fake_queue() as fake:
        fill(fake)
        async with Admin(fake.broker.bootstrap) as admin:
            found = await peek_jobs(admin, "q", "disque", limit, newest=newest)
    assert sorted(job["body"] for job in found) == sorted(bodies)
    times = [job["added"] for job in found]
    assert times == sorted(times, reverse=newest)


async def test_a_job_as_it_is_shown() -> None:
    async with fake_queue() as fake:
        fill(fake)
        async with Admin(fake.broker.bootstrap) as admin:
            found = await peek_jobs(admin, "q", "disque", 3, newest=False)
    job = found[2]
    assert (job["partition"], job["offset"], job["key"], job["size"]) == (0, 8, "k", 4)
    assert job["id"].startswith("D-")
    no_more = {"delayed": 0, "next_due": None}
    document = {"queue": "q", "jobs": found, **no_more}
    assert shown(jobs_table(document))[-1][-4:] == ["4", "B", "8", "8"]
    assert jobs_table({"queue": "q", "jobs": [], **no_more}) == "All jobs of q are done."


async def test_jobs_that_are_not_due_are_not_done() -> None:
    delayed = {"delayed": 2, "next_due": 4_102_444_800_000}
    text = str(jobs_table({"queue": "q", "jobs": [], **delayed}))
    assert text.startswith("q: 2 records held back; the next is due in ")
    async with fake_queue() as fake:
        fill(fake)
        async with Admin(fake.broker.bootstrap) as admin:
            found = await peek_jobs(admin, "q", "disque", 3, newest=False)
    lines = shown(jobs_table({"queue": "q", "jobs": found, **delayed}))
    assert len(lines) == 1 + 3 + 1
    assert lines[-1][:4] == ["q:", "2", "records", "held"]


def test_ranges_are_merged() -> None:
    ranges = OffsetRanges()
    for first, last in ((5, 6), (1, 2), (8, 9), (3, 3), (7, 7), (20, 30), (22, 40)):
        ranges.add(first, last)
    assert [offset for offset in range(50) if offset not in ranges] == [
        0,
        4,
        *range(10, 20),
        *range(41, 50),
    ]
    assert ranges._firsts == [1, 5, 20]


def letter(topic: bytes | None, value: bytes, *headers: tuple[str, bytes]) -> bytes:
    why: tuple[tuple[str, bytes], ...] = (("__dlq.errors.message", b"why"),)
    if topic is not None:
        why = (("__dlq.errors.topic", topic), *why)
    return bytes(build_batch([(b"k", value, (*headers, *why), 5)]))


async def test_dead_letters_go_back_to_where_they_came_from() -> None:
    async with fake_queue({"dead": 1, "q": 1, "r": 1}) as fake:
        log = fake.broker.logs["dead", 0]
        log.append(letter(b"q", b"1", ("h", b"x"), ("qbus-deliver-at", b"7")))
        log.append(letter(b"r", b"2", ("qbus-job", b"60,5,0,1,00000000")))
        log.append(letter(None, b"3"))
        found = await redrive_letters(
            Target(fake.broker.bootstrap), "dead", None, None, "redrive", 1.0
        )
        assert found == {"topic": "dead", "records": 2, "skipped": 1}
        assert fake.group.offsets(1) == [0, 1]
        assert fake.configs == [(32, "redrive", {"share.auto.offset.reset": "earliest"})]
        (record,) = iter_records(fake.broker.logs["q", 0].batches[0])
        assert (record.key, record.value, record.timestamp) == (b"k", b"1", 5)
        assert record.headers == (("h", b"x"),)
        (job,) = iter_records(fake.broker.logs["r", 0].batches[0])
        assert job.timestamp > 1_000_000_000_000


async def test_some_dead_letters_to_another_queue() -> None:
    async with fake_queue({"dead": 1, "q": 1}) as fake:
        for number in range(3):
            fake.broker.logs["dead", 0].append(letter(b"x", b"%d" % number))
        found = await redrive_letters(Target(fake.broker.bootstrap), "dead", "q", 2, "redrive", 1.0)
        assert found["records"] == 2
        assert fake.broker.logs["q", 0].values() == [b"0", b"1"]
        assert fake.group.offsets(1) == [0, 1]
        assert {state.member for state in fake.group.states.values()} == {""}


async def test_letters_that_cannot_be_read_are_no_end_of_them() -> None:
    async with fake_queue({"dead": 1, "q": 1}) as fake:
        fake.broker.logs["dead", 0].append(letter(b"q", b"1"))
        fake.broker.refusal = lambda *_: ErrorCode.KAFKA_STORAGE_ERROR  # type: ignore[method-assign]
        with pytest.raises(Failure, match="still waiting for dead-0"):
            await redrive_letters(Target(fake.broker.bootstrap), "dead", None, None, "redrive", 2.0)


def test_names_that_are_no_queues() -> None:
    assert topic_of("mail:out") == "disque-x.mail-3aout"
    with pytest.raises(click.BadParameter, match="is not empty"):
        topic_of("")
