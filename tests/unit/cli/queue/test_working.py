"""`qbus queue work`: a command for each job, whose exit code says what became of it."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from qbus.cli.failures import Failure
from qbus.cli.queue.working import Work
from qbus.cli.targets import Target
from qbus.errors import ErrorCode
from tests.support.waiting import eventually

from .fake_queue import FakeQueue, fake_queue

ACCEPT, RELEASE = 1, 2
NOTE = """
import json, os, sys
names = [n for n in os.environ if n.startswith("QBUS_")]
said = {n: os.environ[n] for n in names} | {"body": sys.stdin.read()}
open(sys.argv[1] + "/" + os.environ["QBUS_OFFSET"], "w").write(json.dumps(said))
"""


def python(script: str, *arguments: object) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", script, *map(str, arguments))


async def work(
    fake: FakeQueue,
    command: tuple[str, ...],
    *,
    parallel: int = 1,
    count: int | None = None,
    idle: str | None = "1s",
    backoff: str | None = None,
    keeps_result: bool = False,
) -> dict[str, object]:
    working = Work("q", command, backoff=backoff, keeps_result=keeps_result)
    found = await working.run(
        Target(fake.broker.bootstrap), "disque", parallel=parallel, count=count, idle=idle
    )
    assert found.pop("seconds")
    return found


async def test_the_command_has_the_body_on_stdin_and_the_rest_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("QBUS_")]:
        monkeypatch.delenv(name)
    async with fake_queue() as fake:
        fake.store(b"first", b"second")
        found = await work(fake, python(NOTE, tmp_path), count=2)
        assert found == {"queue": "q", "done": 2, "failed": 0, "lost": 0}
        assert fake.group.offsets(ACCEPT) == [0, 1]
    said = json.loads((tmp_path / "1").read_text())
    assert said.pop("QBUS_JOB_ID").startswith("D-")
    assert said == {
        "QBUS_QUEUE": "q",
        "QBUS_JOB_KEY": "k",
        "QBUS_DELIVERIES": "1",
        "QBUS_TOPIC": "q",
        "QBUS_PARTITION": "0",
        "QBUS_OFFSET": "1",
        "body": "second",
    }


async def test_another_exit_code_gives_the_job_back(capfd: pytest.CaptureFixture[str]) -> None:
    async with fake_queue() as fake:
        fake.store(b"body")
        script = "import os, sys; sys.exit(3 if os.environ['QBUS_DELIVERIES'] == '1' else 0)"
        found = await work(fake, python(script), count=2, backoff="2m")
        assert (found["done"], found["failed"]) == (1, 1)
        assert [one[3:5] for one in fake.group.said] == [(RELEASE, 120_000), (ACCEPT, -1)]
    assert "ended with 3" in capfd.readouterr().err


async def test_a_command_that_reads_nothing_is_no_error() -> None:
    async with fake_queue() as fake:
        fake.store(bytes(1_000_000))
        assert (await work(fake, python("pass"), count=1))["done"] == 1


async def test_what_it_prints_is_the_result() -> None:
    async with fake_queue() as fake:
        fake.store(b"body")
        command = python("import sys; print(sys.stdin.read().upper(), end='')")
        await work(fake, command, count=1, keeps_result=True)
        assert fake.group.said[0][5] == b"BODY"


async def test_several_at_once(tmp_path: Path) -> None:
    together = """
import os, sys, time
open(sys.argv[1] + "/" + os.environ["QBUS_OFFSET"], "w")
while len(os.listdir(sys.argv[1])) < 3:
    time.sleep(0.01)
"""
    async with fake_queue() as fake:
        fake.store(b"1", b"2", b"3")
        async with asyncio.timeout(60):
            found = await work(fake, python(together, tmp_path), parallel=3, count=3)
        assert found["done"] == 3


async def test_it_ends_when_there_was_nothing_to_do_for_so_long() -> None:
    async with fake_queue() as fake:
        assert (await work(fake, python("pass"), idle="1s"))["done"] == 0


async def test_jobs_that_cannot_be_read_are_no_idleness() -> None:
    async with fake_queue() as fake:
        fake.broker.refusal = lambda *_: ErrorCode.KAFKA_STORAGE_ERROR  # type: ignore[method-assign]
        with pytest.raises(Failure, match="still waiting for q-0"):
            await work(fake, python("pass"), idle="2s")


async def test_a_job_that_went_to_somebody_else_is_counted(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with fake_queue() as fake:
        fake.store(b"body")
        fake.group.record_refusals = {0}
        assert (await work(fake, python("pass"), count=1))["lost"] == 1
    assert "INVALID_RECORD_STATE" in capfd.readouterr().err


async def test_interrupted_it_ends_the_command_and_gives_the_job_back(tmp_path: Path) -> None:
    script = "import sys, time; open(sys.argv[1], 'w'); time.sleep(60)"
    async with fake_queue() as fake:
        fake.store(b"body")
        working = asyncio.create_task(work(fake, python(script, tmp_path / "there"), idle=None))
        await eventually((tmp_path / "there").exists)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert fake.group.said == []
        assert [state.member for state in fake.group.states.values()] == [""]


async def test_a_command_that_is_replaced_is_tried_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deploying takes the file away for a moment: the worker waits, and keeps its job."""
    monkeypatch.setattr("qbus.cli.queue.working._RUN_AGAIN_S", 0.05)
    command = tmp_path / "command"
    script = f'#!/bin/sh\n[ "$QBUS_OFFSET" = 0 ] && mv {command} {command}.away\nexit 0\n'
    command.write_text(script)
    command.chmod(0o755)
    async with fake_queue() as fake:
        fake.store(b"first", b"second")
        working = asyncio.create_task(work(fake, (str(command),), count=2, idle=None))
        said = ""
        async with asyncio.timeout(60):
            while "trying again in" not in said:
                await asyncio.sleep(0.01)
                said += capfd.readouterr().err
        assert "No such file or directory" in said
        (tmp_path / "command.away").rename(command)
        assert (await working)["done"] == 2
        assert fake.group.offsets(ACCEPT) == [0, 1]


async def test_a_command_that_never_ran_ends_the_work(tmp_path: Path) -> None:
    command = tmp_path / "command"
    command.write_text("no script")
    command.chmod(0o755)
    async with fake_queue() as fake:
        fake.store(b"body")
        with pytest.raises(Failure, match=r"Exec format error \(job D-.* is given back\)"):
            await work(fake, (str(command),), count=1)
        assert [state.member for state in fake.group.states.values()] == [""]


def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(Failure, match="no-such-command: there is no such command"):
        Work("q", ["no-such-command"])
