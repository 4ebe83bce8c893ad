"""One interface to the sync and the async clients: a test that takes ``sdk`` runs with both."""

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Self

import qbus
import qbus.aio


class SdkClients(ABC):
    """Makes clients whose methods are awaited where those of the async clients are coroutines."""

    name: str

    def producer(self, bootstrap: str | Sequence[str], **options: Any) -> Any:
        """A producer, to enter with ``async with``."""
        return self._make("Producer", bootstrap, options)

    def consumer(self, bootstrap: str | Sequence[str], **options: Any) -> Any:
        """A consumer, to enter with ``async with``."""
        return self._make("Consumer", bootstrap, options)

    def share_consumer(
        self, bootstrap: str | Sequence[str], group: str, topics: Sequence[str], **options: Any
    ) -> Any:
        """A member of a share group, to enter with ``async with``."""
        return self._make("ShareConsumer", bootstrap, {"group": group, "topics": topics, **options})

    def admin(self, bootstrap: str | Sequence[str], **options: Any) -> Any:
        """An admin client, to enter with ``async with``."""
        return self._make("Admin", bootstrap, options)

    @abstractmethod
    def _make(self, kind: str, bootstrap: str | Sequence[str], options: dict[str, Any]) -> Any: ...

    @abstractmethod
    async def result(self, delivery: Any, timeout: float = 30.0) -> Any:
        """Return the result of a delivery; raise its error if it failed."""


class AsyncClients(SdkClients):
    """``qbus.aio``, as it is."""

    name = "aio"

    def _make(self, kind: str, bootstrap: str | Sequence[str], options: dict[str, Any]) -> Any:
        return getattr(qbus.aio, kind)(bootstrap, **options)

    async def result(self, delivery: Any, timeout: float = 30.0) -> Any:
        return await asyncio.wait_for(delivery, timeout)


class SyncClients(SdkClients):
    """``qbus`` itself, each call in a thread."""

    name = "blocking"

    def _make(self, kind: str, bootstrap: str | Sequence[str], options: dict[str, Any]) -> Any:
        return Awaited(getattr(qbus, kind)(bootstrap, **options), getattr(qbus.aio, kind))

    async def result(self, delivery: Any, timeout: float = 30.0) -> Any:
        return await asyncio.to_thread(delivery.result, timeout)


class Awaited:
    """A blocking client whose methods are awaited where those of ``model`` are."""

    def __init__(self, client: Any, model: type) -> None:
        self._client = client
        self._model = model

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        if not inspect.iscoroutinefunction(getattr(self._model, name, None)):
            return attribute
        return _in_a_thread(attribute)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._client.__enter__)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self._client.__exit__, *exc)

    async def __aiter__(self) -> AsyncIterator[Any]:
        iterator = iter(self._client)
        while (record := await asyncio.to_thread(next, iterator, None)) is not None:
            yield record


def _in_a_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(function, *args, **kwargs)

    return call


CLIENT_KINDS: dict[str, type[SdkClients]] = {
    kind.name: kind for kind in (AsyncClients, SyncClients)
}
