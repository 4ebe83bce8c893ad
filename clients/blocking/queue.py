"""The client of one queue of jobs for programs without asyncio."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from .. import queue as asyncio_queue
from ..queue import Job
from .client import blocking, same_parameters
from .loop import LoopThread

_Queue = asyncio_queue.Queue

_LOOK_AROUND = 1.0


class Queue:
    """Adds jobs to a queue, takes jobs from it, and waits for results.

    A queue is a topic, and its jobs are records that a share group takes, ``disque`` unless told
    otherwise: what one program adds here another may take with Disque's commands, and the other way
    round. A job is given out again until it is acknowledged: at least once. One that was added
    with ``retry=0`` is given out at most once.

    A context manager; any number of threads may use it. Leaving it gives back the jobs that it
    still has.
    """

    @same_parameters(_Queue.__init__)
    def __init__(self, bootstrap: str | Sequence[str], name: str, **options: Any) -> None:
        self._thread = LoopThread("qbus-queue")
        self._client = self._thread.call(lambda: _Queue(bootstrap, name, **options))

    def __repr__(self) -> str:
        return repr(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._client.name

    @property
    def topic(self) -> str:
        """The topic that the queue is."""
        return self._client.topic

    def __iter__(self) -> Iterator[Job]:
        """Yield jobs for ever; asking for the next acknowledges the one before."""
        while True:
            job = self.get(_LOOK_AROUND)
            if job is not None:
                yield job
                self._thread.run(self._client._ack_unless_told(job))

    def close(self) -> None:
        """Give back the jobs that this program still has, and close."""
        if not self._thread.is_closed:
            try:
                self._thread.run(self._client.close())
            finally:
                self._thread.close()

    create = blocking(_Queue.create)
    create_if_missing = blocking(_Queue.create_if_missing)
    add = blocking(_Queue.add)
    get = blocking(_Queue.get)
    ack = blocking(_Queue.ack)
    nack = blocking(_Queue.nack)
    reject = blocking(_Queue.reject)
    working = blocking(_Queue.working)
    wait = blocking(_Queue.wait)
