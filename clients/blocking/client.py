"""How a method of an asyncio client becomes one that blocks."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from .loop import LoopThread

P = ParamSpec("P")
T = TypeVar("T")


class Face(Protocol):
    """A blocking client: the asyncio client behind it, and the thread in which that lives."""

    _client: Any
    _thread: LoopThread


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """``method`` of the client behind a face, waited for: same arguments, documentation, result."""

    @wraps(method)
    def wait(self: Face, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method(self._client, *args, **kwargs))

    wait.__qualname__ = wait.__name__
    return wait
