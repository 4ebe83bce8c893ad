"""How a client for programs without asyncio is made of an asyncio client and a thread."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from .loop import LoopThread

P = ParamSpec("P")
T = TypeVar("T")


class BlockingClient(Protocol):
    """An asyncio client, and the thread whose event loop it lives in."""

    _client: Any
    _thread: LoopThread


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that waits for ``method`` of the asyncio client."""

    @wraps(method)
    def wait(self: BlockingClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method(self._client, *args, **kwargs))

    wait.__qualname__ = wait.__name__
    return wait


def in_thread(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method that calls ``method``, a plain one of the asyncio client, in its thread."""

    @wraps(method)
    def call(self: BlockingClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(lambda: method(self._client, *args, **kwargs))

    call.__qualname__ = call.__name__
    return call


def same_parameters(
    method: Callable[Concatenate[Any, P], object],
) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Give a method the parameters, defaults and documentation of an asyncio client's method."""

    def decorate(own: Callable[..., T]) -> Callable[Concatenate[Any, P], T]:
        return wraps(method)(own)

    return decorate
