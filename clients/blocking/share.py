"""The consumer of a share group for programs without asyncio."""

import asyncio
import inspect
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Self

from .. import share as asyncio_share
from ..share.options import OnLost
from ..share.types import AcknowledgementLost, RecordPlace, ShareRecord
from ..types import TopicPartition
from .client import blocking, in_thread, same_parameters
from .loop import LoopThread

_ShareConsumer = asyncio_share.ShareConsumer


class ShareConsumer:
    """Takes records as a member of a share group: a queue over topics (KIP-932).

    Any number of members share a partition. A member has a record under a lock until it says what
    came of it; when the lock runs out (after 30 s, unless the group is configured otherwise) the
    record goes to another member.

    A context manager, for one thread at a time, except that other threads may say what came of
    records while one polls. Leaving it gives back what it still has. If an exception leaves it,
    that includes all of the last poll, or the record that the loop was at.
    """

    @same_parameters(_ShareConsumer.__init__)
    def __init__(
        self, bootstrap: str | Sequence[str], group: str, topics: Iterable[str], **options: Any
    ) -> None:
        options["on_lost"] = _beside_loop(options.get("on_lost"))
        self._client = _ShareConsumer(bootstrap, group, topics, **options)
        self._thread = LoopThread("qbus-share-consumer")

    def __repr__(self) -> str:
        return repr(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: object, *_: object) -> None:
        self.close(accept=exc_type is None)

    def __iter__(self) -> Iterator[ShareRecord]:
        """Yield records for ever, or until none came for ``consumer_timeout_ms``.

        Asking for the next accepts the one before, unless that is explicit.
        """
        return chain.from_iterable(self._runs())

    def _runs(self) -> Iterator[Iterator[ShareRecord]]:
        client = self._client
        tell = partial(self._thread.post, client._look)
        self._thread.call(client._accept_seen)
        while True:
            while (run := client._next_ready()) is not None:
                yield client._yielded(run, tell)
            if not self._thread.run(client._next_run()):
                return

    def close(self, *, accept: bool = True) -> None:
        if not self._thread.is_closed:
            try:
                self._thread.run(self._client.close(accept=accept))
            finally:
                self._thread.close()

    close.__doc__ = _ShareConsumer.close.__doc__

    @property
    def member_id(self) -> str:
        """The id of this member in its group."""
        return self._client.member_id

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that the group has this member take records of."""
        return self._thread.call(lambda: self._client.assignment)

    @property
    def held(self) -> list[RecordPlace]:
        """The records that polls returned and nothing was said of yet."""
        return self._thread.call(lambda: self._client.held)

    @property
    def lock_timeout(self) -> float | None:
        """Seconds until a record's lock runs out, counted from when it was taken or renewed.

        None until a broker said so.
        """
        return self._client.lock_timeout

    poll = blocking(_ShareConsumer.poll)
    poll_arrow = blocking(_ShareConsumer.poll_arrow)

    accept = in_thread(_ShareConsumer.accept)
    release = in_thread(_ShareConsumer.release)
    reject = in_thread(_ShareConsumer.reject)
    renew = blocking(_ShareConsumer.renew)
    settle = blocking(_ShareConsumer.settle)
    flush = blocking(_ShareConsumer.flush)


def _beside_loop(callback: OnLost | None) -> OnLost | None:
    """Run a plain callback in another thread: it may wait for the consumer, so not in the
    loop's.
    """
    if callback is None or inspect.iscoroutinefunction(callback):
        return callback

    async def call(error: AcknowledgementLost) -> None:
        await asyncio.to_thread(callback, error)

    return call
