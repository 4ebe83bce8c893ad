"""A group that reads in its datacenter, and the offsets synced for it elsewhere."""

import threading
from typing import Self

from qbus import Consumer
from qbus.clients.blocking.admin import Admin
from qbus.clients.types import TopicPartition

from .idcs import PARTITIONS, TOPIC, Idc
from .judging import span

GROUP = "readers"


class Reader:
    """The only member of the group: it reads everything, and commits often."""

    def __init__(self, idc: Idc) -> None:
        self._idc = idc
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def stop(self) -> None:
        """Stop reading; raise the error if reading failed."""
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _read(self) -> None:
        try:
            with Consumer(
                self._idc.bootstrap,
                group=GROUP,
                offset_reset="earliest",
                auto_commit_interval_ms=200,
                session_timeout_ms=6_000,
            ) as consumer:
                consumer.subscribe([TOPIC])
                while not self._over.is_set():
                    consumer.poll(0.2)
        except BaseException as failure:
            self._failure = failure


def committed(home: Idc, target: Idc) -> dict[TopicPartition, int]:
    """Return the group's synced offsets in the mirror of its topic; never beyond the data."""
    topic = f"{home.name}.{TOPIC}"
    partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    with Admin(target.bootstrap) as admin:
        found = {
            one: offset.offset for one, offset in admin.committed_offsets(GROUP, partitions).items()
        }
    for one, offset in found.items():
        reached = span(target, topic, one.partition)
        assert reached is None or offset <= reached.end, f"{one} at {offset} of {reached}"
    return found
