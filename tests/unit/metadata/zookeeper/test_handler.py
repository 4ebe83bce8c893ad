"""Delivery from kazoo's thread to the event loop: once, in order, without blocking."""

import asyncio
import socket
import threading
from functools import partial
from time import perf_counter

import pytest

from qbus.metadata.zookeeper.handler import Inbox, LoopHandler, Waker
from qbus.service.event_loop import Ticks
from tests.support.waiting import eventually


async def test_what_threads_put_in_comes_out_in_order_in_the_loop() -> None:
    inbox, here = Inbox(asyncio.get_running_loop()), threading.get_ident()
    taken: list[tuple[int, int]] = []

    def put(many: int) -> None:
        for i in range(many):
            inbox.put(lambda i=i: taken.append((i, threading.get_ident())))  # type: ignore[misc]

    thread = threading.Thread(target=put, args=(10_000,))
    thread.start()
    await eventually(lambda: len(taken) == 10_000)
    thread.join()
    assert taken == [(i, here) for i in range(10_000)]


async def test_many_threads_lose_nothing() -> None:
    inbox = Inbox(asyncio.get_running_loop())
    taken: list[int] = []

    def put() -> None:
        for _ in range(2_000):
            inbox.put(partial(taken.append, 1))

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    await eventually(lambda: len(taken) == 16_000)


async def test_a_failing_call_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    inbox = Inbox(asyncio.get_running_loop())
    taken: list[int] = []
    inbox.put(lambda: 1 / 0)
    inbox.put(lambda: taken.append(1))
    await eventually(lambda: bool(taken))
    assert "ZeroDivisionError" in caplog.text


def test_calls_after_the_end_of_the_loop_are_dropped() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    Inbox(loop).put(lambda: None)


async def test_an_answer_to_a_cancelled_request_is_dropped() -> None:
    handler = LoopHandler(asyncio.get_running_loop(), 1.0)
    given_up, failed, waited_for = (handler.async_result() for _ in range(3))
    given_up.future.cancel()
    failed.future.cancel()
    given_up.set("late")
    failed.set_exception(OSError("late"))
    waited_for.set("answer")
    assert await waited_for.future == "answer"


async def test_a_failure_is_an_answer() -> None:
    answer = LoopHandler(asyncio.get_running_loop(), 1.0).async_result()
    answer.set_exception(OSError("cut"))
    with pytest.raises(OSError, match="cut"):
        await answer.future


async def test_a_linked_callback_is_called() -> None:
    answer = LoopHandler(asyncio.get_running_loop(), 1.0).async_result()
    got: list[object] = []
    answer.rawlink(lambda answer: got.append(answer.get()))
    answer.set("value")
    await eventually(lambda: got == ["value"])


async def test_a_thread_is_woken_as_often_as_it_was_asked_however_often_that_is() -> None:
    handler = LoopHandler(asyncio.get_running_loop(), 1.0)
    read, write = handler.create_socket_pair()
    for _ in range(100_000):  # a pair of sockets blocks after some hundred
        write.send(b"\0")
    for _ in range(100_000):
        read.recv(1)
    assert handler.select([read], [], [], 0) == ([], [], [])
    read.close()
    write.close()


def test_closing_what_wakes_twice_is_fine() -> None:
    waker = Waker()
    waker.close()
    waker.close()
    with pytest.raises(ValueError, match="negative"):  # not somebody else's descriptor
        waker.send(b"\0")


async def test_select_tells_what_is_ready() -> None:
    handler = LoopHandler(asyncio.get_running_loop(), 1.0)
    waker = Waker()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert handler.select([ours, waker], [], [], 0.001) == ([], [], [])
        assert handler.select([], [ours], [], 1) == ([], [ours], [])
        waker.send(b"\0")
        assert handler.select([ours, waker], [], [], None) == ([waker], [], [])
        theirs.close()
        assert handler.select([ours], [], [], None) == ([ours], [], []), "closed is readable"
    waker.close()


async def test_nothing_is_sent_while_the_loop_stands_still() -> None:
    """Whatever a session sends keeps it alive: pings come from a thread that always runs."""
    ticks = Ticks()
    ticks.began = perf_counter() - 60.0  # the tick of a loop that is frozen
    handler = LoopHandler(asyncio.get_running_loop(), 1.0, ticks=ticks, patience_s=3.0)
    ours, theirs = socket.socketpair()
    sent = threading.Event()

    def send() -> None:
        assert handler.select([], [ours], [], 1) == ([], [ours], [])
        sent.set()

    with ours, theirs:
        thread = threading.Thread(target=send)
        thread.start()
        assert not await asyncio.to_thread(sent.wait, 0.2)
        ticks.began = perf_counter()  # the next tick
        assert await asyncio.to_thread(sent.wait, 5.0)
        thread.join()


@pytest.mark.parametrize("began_ago", [0.0, 2.5])
async def test_a_loop_that_moves_or_stands_for_a_moment_sends(began_ago: float) -> None:
    ticks = Ticks()
    ticks.began = perf_counter() - began_ago
    handler = LoopHandler(asyncio.get_running_loop(), 1.0, ticks=ticks, patience_s=60.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert handler.select([], [ours], [], 1) == ([], [ours], [])


async def test_what_comes_is_received_while_the_loop_stands_still() -> None:
    ticks = Ticks()
    ticks.began = perf_counter() - 60.0
    handler = LoopHandler(asyncio.get_running_loop(), 1.0, ticks=ticks, patience_s=3.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")
        assert handler.select([ours], [], [], 1) == ([ours], [], [])
