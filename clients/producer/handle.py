"""What a send returns: to be asked, waited for, awaited, or told what to call."""

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Generic, Self, TypeVar

from qbus.errors import QbusError

from ..errors import RequestTimedOut

T_co = TypeVar("T_co", covariant=True)


class Handle(ABC, Generic[T_co]):
    """The outcome of a send, now or later. Any thread may ask; awaiting is for event loops."""

    __slots__ = ()

    @abstractmethod
    def done(self) -> bool:
        """Whether it is delivered or has failed."""

    @abstractmethod
    def _outcome(self) -> T_co | Exception:
        """What became of it, once that is known."""

    @abstractmethod
    def _notify(self, notify: Callable[[], object]) -> None:
        """Call ``notify`` when done: at once, or in the thread that finds out."""

    @abstractmethod
    def _is_in_loop(self) -> bool:
        """Whether the caller runs in the loop that has to find out."""

    def result(self, timeout: float | None = None) -> T_co:
        """Where it went, waiting ``timeout`` seconds for that (None: as long as it takes).

        Raises what kept it from being delivered, or :class:`~qbus.clients.RequestTimedOut` when it
        is neither delivered nor failed by then.
        """
        self._wait(timeout)
        outcome = self._outcome()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def exception(self, timeout: float | None = None) -> Exception | None:
        """What kept it from being delivered, if anything did; waits and raises as ``result``."""
        self._wait(timeout)
        outcome = self._outcome()
        return outcome if isinstance(outcome, Exception) else None

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call ``callback`` with this when done: at once, or in the producer's loop."""
        self._notify(lambda: callback(self))

    def __await__(self) -> Generator[object, None, T_co]:
        if not self.done():
            loop = asyncio.get_running_loop()
            arrived = loop.create_future()
            self._notify(lambda: _wake(loop, arrived))
            yield from arrived
        return self.result()

    def _wait(self, timeout: float | None) -> None:
        if self.done():
            return
        if self._is_in_loop():
            raise QbusError("not delivered yet: await it")
        arrived = threading.Event()
        self._notify(arrived.set)
        if not arrived.wait(timeout):
            raise RequestTimedOut(f"not delivered in {timeout} s")


def _wake(loop: asyncio.AbstractEventLoop, arrived: "asyncio.Future[None]") -> None:
    with contextlib.suppress(RuntimeError):  # the loop may be closed by now
        loop.call_soon_threadsafe(arrive, arrived)


def arrive(arrived: "asyncio.Future[None]") -> None:
    """Tell whoever waits, unless nobody does any more."""
    if not arrived.done():
        arrived.set_result(None)
