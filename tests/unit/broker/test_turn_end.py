"""What is gathered in a turn of the event loop is done at its end, and no turn later."""

import asyncio
from functools import partial

import pytest

from qbus.broker.turn_end import at_end, begin_turn


async def test_it_is_done_when_what_came_was_handled() -> None:
    loop, done = asyncio.get_running_loop(), list[str]()
    turn = begin_turn(loop)
    assert turn is not None
    at_end(loop, partial(done.append, "first"))
    at_end(loop, lambda: at_end(loop, partial(done.append, "what it leads to")))
    at_end(loop, partial(done.append, "second"))
    assert done == []
    turn.end()
    assert done == ["first", "second", "what it leads to"]


async def test_it_waits_for_what_else_has_come() -> None:
    loop, done = asyncio.get_running_loop(), list[str]()
    loop.call_soon(done.append, "what has come, too")
    assert begin_turn(loop) is None
    at_end(loop, partial(done.append, "end"))
    assert done == []
    await asyncio.sleep(0)
    assert done == ["what has come, too", "end"]


async def test_without_a_turn_it_is_done_in_the_next_one() -> None:
    loop, done = asyncio.get_running_loop(), list[str]()
    at_end(loop, partial(done.append, "end"))
    assert done == []
    await asyncio.sleep(0)
    assert done == ["end"]


async def test_what_leads_to_ever_more_leaves_others_their_turn() -> None:
    loop, count = asyncio.get_running_loop(), 0

    def again() -> None:
        nonlocal count
        count += 1
        if count < 100:
            at_end(loop, again)

    turn = begin_turn(loop)
    assert turn is not None
    at_end(loop, again)
    turn.end()
    assert 1 < count < 50
    for _ in range(100):
        await asyncio.sleep(0)
    assert count == 100


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
async def test_a_defect_ends_nothing_else(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    loop, done = asyncio.get_running_loop(), list[str]()

    def fail() -> None:
        raise error("a defect")

    turn = begin_turn(loop)
    assert turn is not None
    at_end(loop, fail)
    at_end(loop, partial(done.append, "second"))
    turn.end()
    assert done == ["second"]
    assert "failed at the end of a turn" in caplog.text
    following = begin_turn(loop)
    assert following is not None, "nothing is left of it"
    following.end()


async def test_another_loop_has_its_own_turns() -> None:
    loop, done = asyncio.get_running_loop(), list[str]()
    turn = begin_turn(loop)
    assert turn is not None
    other = asyncio.new_event_loop()
    try:
        at_end(other, partial(done.append, "other"))
        turn.end()
        assert done == []
    finally:
        other.close()


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
async def test_what_ends_the_process_leaves_the_rest_to_the_loop(
    end: type[BaseException],
) -> None:
    loop, done = asyncio.get_running_loop(), list[str]()

    def fail() -> None:
        raise end

    turn = begin_turn(loop)
    assert turn is not None
    at_end(loop, fail)
    at_end(loop, partial(done.append, "second"))
    with pytest.raises(end):
        turn.end()
    assert done == []
    await asyncio.sleep(0)
    assert done == ["second"]
