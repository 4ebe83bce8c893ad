"""Which callback a loop is at is read from its frames."""

import asyncio
import socket
import sys
import threading
from functools import partial
from types import FrameType

from qbus.service.event_loop.callbacks import callback_of, name_of, place_of

_HERE = f"{__name__}"


class Getter(asyncio.Protocol):
    """Gets bytes."""


class Timer:
    def fire(self) -> None:
        """Do nothing."""


def test_a_callback_is_named_by_its_module_and_itself() -> None:
    assert name_of(Timer().fire) == f"{_HERE}.Timer.fire"
    assert name_of(partial(partial(Timer().fire), 1)) == f"{_HERE}.Timer.fire"


def test_the_package_that_all_modules_share_is_left_out() -> None:
    from qbus.service.event_loop.ticks import Ticks

    assert name_of(Ticks().stands_s).startswith("service.event_loop.ticks.")


async def test_bytes_that_came_are_named_by_who_gets_them() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(Getter, ours)
        assert name_of(transport.close) == f"{_HERE}.Getter"
        transport.close()


async def test_a_callback_that_cancels_itself_is_known_by_its_frame() -> None:
    """As one that is called when there is something to read, and wants to read no more."""
    handles, found = list[asyncio.Handle](), list[str]()

    def read() -> None:
        handles[0].cancel()
        found.append(callback_of(sys._getframe()))

    handles.append(asyncio.get_running_loop().call_soon(read))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert found[0].endswith(".<locals>.read")


async def test_a_step_of_a_task_is_named_by_the_task() -> None:
    async def work() -> str:
        return callback_of(sys._getframe())

    assert await asyncio.create_task(work(), name="leadership lease") == "task leadership lease"
    assert (await asyncio.create_task(work())).endswith("work")


async def test_what_a_loop_is_at_is_seen_from_another_thread() -> None:
    loop_thread, found = threading.get_ident(), list[str]()

    def look() -> None:
        frame = sys._current_frames()[loop_thread]
        found.append(callback_of(frame))

    def fire() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    asyncio.get_running_loop().call_soon(fire)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert found[0].endswith("fire")


async def test_just_after_its_end_a_callback_is_still_known() -> None:
    """Compiled code lets no other thread look before it has returned to the loop."""
    found: list[str] = []

    class Late(asyncio.Handle):
        def _run(self) -> None:
            outer = sys._getframe().f_back
            assert isinstance(outer, FrameType)
            found.append(callback_of(outer))

    loop = asyncio.get_running_loop()
    handle = Late(Timer().fire, [], loop)
    loop._ready.append(handle)  # type: ignore[attr-defined] # as a frame of the loop has it
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert found == [f"{_HERE}.Timer.fire"]


def test_outside_of_a_callback_it_is_the_loop_itself() -> None:
    assert callback_of(None) == "the loop itself"


def test_a_place_has_the_innermost_line_last() -> None:
    place = place_of(sys._getframe(), 5)
    assert place.tick == 5
    assert "test_callbacks.py:" in place.line
    assert place.line.endswith(" in test_a_place_has_the_innermost_line_last")
    assert place.stack[-1].name == "test_a_place_has_the_innermost_line_last"
