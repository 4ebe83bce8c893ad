"""Delayed answers: completed once, in time, and forgotten at once."""

import asyncio
import gc
import weakref
from functools import partial

import pytest

from qbus.broker.partition.purgatory import Delayed, Purgatory

pytestmark = pytest.mark.sources


class Answer(Delayed[str]):
    """Remembers what happened to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.withdrawn = 0
        self.completed = 0

    def complete(self) -> None:
        self.completed += 1
        self.answer("complete")

    def expire(self) -> None:
        self.answer("expired")

    def withdraw(self) -> None:
        self.withdrawn += 1


class Slow(Answer):
    """Completes in two steps, as one that has to wait for a disk."""

    def complete(self) -> None:
        self.completed += 1
        self.loop.call_soon(self.answer, "complete")


class Defect(Answer):
    def complete(self) -> None:
        raise ValueError("a defect")

    expire = complete


@pytest.fixture
async def purgatory() -> Purgatory:
    return Purgatory(asyncio.get_running_loop())


def delayed(purgatory: Purgatory, seconds: float = 60.0, kind: type[Answer] = Answer) -> Answer:
    answer = kind(purgatory.loop)
    purgatory.fetches.add(answer, seconds)
    return answer


async def test_an_answer_that_is_ready_completes_before_its_time(purgatory: Purgatory) -> None:
    answer = delayed(purgatory)
    purgatory.schedule(answer)
    assert not answer.done()  # at the end of this turn, with whatever else becomes ready in it
    assert await answer == "complete"
    assert len(purgatory.fetches) == 0
    assert answer.withdrawn == 1


async def test_a_coroutine_that_is_cancelled_withdraws_what_it_waits_for(
    purgatory: Purgatory,
) -> None:
    """A client that is gone must not leave watched partitions until its time runs out."""
    answer = delayed(purgatory)

    async def wait() -> str:
        return await answer

    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    assert answer.cancelled()
    assert answer.withdrawn == 1
    assert len(purgatory.fetches) == 0


async def test_scheduling_twice_in_a_turn_completes_once(purgatory: Purgatory) -> None:
    answer = delayed(purgatory, kind=Slow)
    purgatory.schedule(answer)
    purgatory.schedule(answer)
    assert await answer == "complete"
    assert answer.completed == 1


async def test_without_progress_the_time_runs_out(purgatory: Purgatory) -> None:
    loop = purgatory.loop
    started = loop.time()
    answer = delayed(purgatory, 0.03)
    assert await answer == "expired"
    assert loop.time() - started >= 0.03  # never early
    assert len(purgatory.fetches) == 0


async def test_answers_run_out_in_the_order_of_their_deadlines(purgatory: Purgatory) -> None:
    order: list[str] = []

    def note(name: str, _: asyncio.Future[str]) -> None:
        order.append(name)

    for name, seconds in (("late", 0.06), ("soon", 0.0), ("middle", 0.03)):
        delayed(purgatory, seconds).add_done_callback(partial(note, name))
    await asyncio.sleep(0.12)
    assert order == ["soon", "middle", "late"]


async def test_a_client_that_is_gone_withdraws_its_answer(purgatory: Purgatory) -> None:
    answer = delayed(purgatory)
    purgatory.schedule(answer)
    assert answer.cancel()
    assert answer.withdrawn == 1
    assert len(purgatory.fetches) == 0
    await asyncio.sleep(0)  # the turn's end finds it cancelled and leaves it alone
    assert answer.cancelled()


async def test_progress_after_cancelling_is_ignored(purgatory: Purgatory) -> None:
    answer = delayed(purgatory)
    answer.cancel()
    answer.answer("too late")
    answer.fail(ValueError("too late"))
    assert answer.cancelled()


async def test_a_finished_answer_is_not_held_until_its_time_is_up(purgatory: Purgatory) -> None:
    answer = delayed(purgatory, 3600.0)
    alive = weakref.ref(answer)
    answer.cancel()
    del answer
    gc.collect()
    assert alive() is None


async def test_a_defect_fails_its_own_answer_and_no_other(purgatory: Purgatory) -> None:
    bad, good = delayed(purgatory, kind=Defect), delayed(purgatory)
    purgatory.schedule(bad)
    purgatory.schedule(good)
    with pytest.raises(ValueError, match="a defect"):
        await bad
    assert await good == "complete"
    assert len(purgatory.fetches) == 0


async def test_a_defect_at_the_deadline_fails_its_answer(purgatory: Purgatory) -> None:
    bad = delayed(purgatory, 0.0, kind=Defect)
    with pytest.raises(ValueError, match="a defect"):
        await bad


async def test_draining_lets_nobody_wait_neither_now_nor_later(purgatory: Purgatory) -> None:
    before = delayed(purgatory, 3600.0)
    purgatory.fetches.drain()
    assert await before == "expired"
    assert await delayed(purgatory, 3600.0) == "expired"


async def test_draining_fetches_leaves_produces_their_time(purgatory: Purgatory) -> None:
    answer = Answer(purgatory.loop)
    purgatory.produces.add(answer, 3600.0)
    purgatory.fetches.drain()
    assert not answer.done()
    assert len(purgatory.produces) == 1


async def test_thousands_that_run_out_together_share_one_timer(purgatory: Purgatory) -> None:
    answers = [delayed(purgatory, 0.02) for _ in range(5_000)]
    assert len(purgatory.fetches) == 5_000
    timers = len(purgatory.loop._scheduled)  # type: ignore[attr-defined]
    assert timers < 50
    assert set(await asyncio.gather(*answers)) == {"expired"}
