"""The time that commands hold the event loop for."""

import asyncio
import time
from collections.abc import Awaitable

import pytest

from qbus.broker.disque import resp
from qbus.broker.disque.calls import Call, Command
from qbus.broker.disque.dispatch import Dispatcher
from qbus.service.event_loop import SlowHandlers, Ticks

from .jobs import Jobs


@pytest.fixture
def slow() -> SlowHandlers:
    return SlowHandlers(Ticks(0.01))


def run_instead(jobs: Jobs, slow: SlowHandlers, run: object) -> None:
    """Have PING do something else."""
    jobs.dispatcher = Dispatcher(jobs.service, jobs.admin, slow)
    row = Command("ping", -1, "rF", run)  # type: ignore[arg-type] # any of its kinds
    jobs.dispatcher._by_word[b"PING"] = jobs.dispatcher._by_word[b"ping"] = row


async def test_a_command_that_holds_the_loop_is_counted_and_logged_with_its_client(
    jobs: Jobs, slow: SlowHandlers, caplog: pytest.LogCaptureFixture
) -> None:
    def run(_: Call) -> bytes:
        assert slow.ticks.current is jobs.client
        time.sleep(0.02)
        return resp.OK

    run_instead(jobs, slow, run)
    assert await jobs.ask("PING") == "OK"
    assert slow.counts == {"DISQUE PING": 1}
    assert slow.ticks.current is None
    assert "DISQUE PING of :0 (client b'', User:ANONYMOUS) held the event loop" in (
        caplog.text.replace("127.0.0.1:5000", ":0")
    )


async def test_a_command_that_waits_is_charged_for_its_steps_only(
    jobs: Jobs, slow: SlowHandlers
) -> None:
    async def wait() -> bytes:
        await asyncio.sleep(0.05)
        return resp.OK

    async def hold() -> bytes:
        await asyncio.sleep(0)
        time.sleep(0.02)  # noqa: ASYNC251 - it holds the loop
        return resp.OK

    def waiting(_: Call) -> Awaitable[bytes]:
        return wait()

    def holding(_: Call) -> Awaitable[bytes]:
        return hold()

    run_instead(jobs, slow, waiting)
    assert await jobs.ask("PING") == "OK"
    assert slow.counts == {}
    run_instead(jobs, slow, holding)
    assert await jobs.ask("PING") == "OK"
    assert slow.counts == {"DISQUE PING": 1}


async def test_words_of_clients_make_no_names(jobs: Jobs, slow: SlowHandlers) -> None:
    jobs.dispatcher = Dispatcher(jobs.service, jobs.admin, slow)
    jobs.dispatcher.end_step(jobs.client, [b"XYZZY" * 1_000], time.perf_counter() - 1.0)
    assert slow.counts == {"DISQUE (unknown command)": 1}


async def test_a_command_of_a_node_is_named_as_any(jobs: Jobs, slow: SlowHandlers) -> None:
    jobs.dispatcher = Dispatcher(jobs.service, jobs.admin, slow)
    words = [b"QBUS.LOCAL", b"GETJOB", b"FROM", b"q"]
    jobs.dispatcher.end_step(jobs.client, words, time.perf_counter() - 1.0)
    assert slow.counts == {"DISQUE GETJOB": 1}
