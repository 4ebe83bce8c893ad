"""The broker's process, where it decides to end by itself."""

import asyncio
from collections.abc import Callable
from typing import Any

from qbus.broker.server import _on_store_lost
from qbus.metadata import SessionState


class Store:
    """A store that says when its state changes."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[SessionState], None]] = []

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        self.callbacks.append(callback)

    def enter(self, state: SessionState) -> None:
        for callback in self.callbacks:
            callback(state)


async def test_a_lost_store_stops_the_broker_as_a_failure() -> None:
    store: Any = Store()
    stop = asyncio.Event()
    lost = _on_store_lost(store, stop)
    store.enter(SessionState.LOST)
    assert stop.is_set()
    assert lost.is_set()


async def test_a_suspended_session_is_waited_for() -> None:
    store: Any = Store()
    stop = asyncio.Event()
    lost = _on_store_lost(store, stop)
    store.enter(SessionState.SUSPENDED)
    store.enter(SessionState.CONNECTED)
    assert not stop.is_set()
    assert not lost.is_set()


async def test_a_store_that_is_closed_because_we_stop_is_not_lost() -> None:
    store: Any = Store()
    stop = asyncio.Event()
    lost = _on_store_lost(store, stop)
    stop.set()
    store.enter(SessionState.LOST)
    assert not lost.is_set()
