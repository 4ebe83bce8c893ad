"""A member of a group of the consumer protocol, in a process that a test may kill.

``python -m tests.cluster.group_member KIND BOOTSTRAP TOPIC GROUP`` reads, commits every few records
and before it gives partitions up, and prints what happens to it, a JSON array a line:
``[what, seconds, {partition: offset}]``. ``what``: assigned, revoked, lost, read or committed. It
is printed when it begins to hold, or has ceased to. It leaves the group at the end of standard
input.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka as ck

from qbus.aio import Consumer
from qbus.errors import QbusError

_POLL_S = 0.1
_EVERY = 20  # records between two commits


def _tell(what: str, offsets: Mapping[int, int] | Iterable[int]) -> None:
    found = offsets if isinstance(offsets, Mapping) else dict.fromkeys(offsets, -1)
    print(json.dumps([what, time.monotonic(), found]), flush=True)


class Positions:
    """What was read, and is to be committed."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._count = 0

    def read(self, partition: int, offset: int) -> bool:
        """Note a record; return whether it is time to commit."""
        _tell("read", {partition: offset})
        self._next[partition] = offset + 1
        self._count += 1
        return self._count % _EVERY == 0

    def of(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return what to commit of these partitions."""
        return {one: self._next[one] for one in partitions if one in self._next}

    def all(self) -> dict[int, int]:
        """Return what to commit of all partitions."""
        return dict(self._next)

    def forget(self, partitions: Iterable[int]) -> None:
        """Others have them."""
        for one in partitions:
            self._next.pop(one, None)


class Librdkafka:
    """A member by librdkafka."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._topic = topic
        self._positions = Positions()
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 2,
            }
        )

    def run(self, leaving: threading.Event) -> None:
        """Read until told to leave."""
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        while not leaving.is_set():
            message = self._consumer.poll(_POLL_S)
            if message is None or message.error() is not None:
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if self._positions.read(partition, offset):
                self._commit(self._positions.all())
        self._consumer.close()

    def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        places = [ck.TopicPartition(self._topic, one, at) for one, at in offsets.items()]
        try:
            done = self._consumer.commit(offsets=places, asynchronous=False)
        except ck.KafkaException:
            return  # the next commit covers it, or the next owner reads it again
        good = {one.partition: one.offset for one in done or () if one.error is None}
        _tell("committed", good)

    def _assigned(self, _consumer: Any, places: list[ck.TopicPartition]) -> None:
        _tell("assigned", [one.partition for one in places])

    def _revoked(self, _consumer: Any, places: list[ck.TopicPartition]) -> None:
        partitions = [one.partition for one in places]
        self._commit(self._positions.of(partitions))
        self._positions.forget(partitions)
        _tell("revoked", partitions)

    def _lost(self, _consumer: Any, places: list[ck.TopicPartition]) -> None:
        partitions = [one.partition for one in places]
        self._positions.forget(partitions)
        _tell("lost", partitions)


class Qbus:
    """A member by Qbus's own client."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group
        self._positions = Positions()
        self._consumer: Consumer

    def run(self, leaving: threading.Event) -> None:
        """Read until told to leave."""
        asyncio.run(self._run(leaving))

    async def _run(self, leaving: threading.Event) -> None:
        async with Consumer(
            self._bootstrap,
            group=self._group,
            group_protocol="consumer",
            offset_reset="earliest",
            auto_commit=False,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
        ) as self._consumer:
            self._consumer.subscribe([self._topic])
            while not leaving.is_set():
                is_due = False
                for batch in await self._consumer.poll(_POLL_S):
                    for record in batch:
                        is_due |= self._positions.read(record.partition, record.offset)
                if is_due:
                    await self._commit(self._positions.all())

    async def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        try:
            await self._consumer.commit({(self._topic, one): at for one, at in offsets.items()})
        except QbusError:
            return  # the next commit covers it, or the next owner reads it again
        _tell("committed", offsets)

    def _assigned(self, places: Any) -> None:
        _tell("assigned", [one.partition for one in places])

    async def _revoked(self, places: Any) -> None:
        partitions = [one.partition for one in places]
        await self._commit(self._positions.of(partitions))
        self._positions.forget(partitions)
        _tell("revoked", partitions)

    def _lost(self, places: Any) -> None:
        partitions = [one.partition for one in places]
        self._positions.forget(partitions)
        _tell("lost", partitions)


KINDS: dict[str, type[Librdkafka | Qbus]] = {"librdkafka": Librdkafka, "qbus": Qbus}


def main() -> None:
    """Be a member until the end of standard input. What ends it before that ends the process."""
    kind, *where = sys.argv[1:]
    leaving = threading.Event()
    threading.Thread(target=_wait_for_end, args=(leaving,), daemon=True).start()
    KINDS[kind](*where).run(leaving)


def _wait_for_end(leaving: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    leaving.set()


if __name__ == "__main__":
    main()
