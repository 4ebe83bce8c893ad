"""Members of a group in a process that a test may kill.

``python -m tests.cluster.group_member KIND BOOTSTRAP TOPIC GROUP`` takes a word and a member's
name a line: ``join`` makes a member, ``unsubscribe`` has it leave and ``subscribe`` come again,
``leave`` closes it. At the end of standard input all leave.

Members read, commit what they read about once a second and before they give partitions up, and
print what happens to them, a JSON array a line: ``[name, what, seconds, {partition: offset}]``.
``what``: assigned, revoked, lost, read, committing (it begins to), committed, expelled (a commit
was refused as one of nobody) or left. It is printed when a member begins to hold a partition, or
has ceased to; offsets are what was read, or is to be committed. Seconds are of the machine's
monotonic clock.
"""

import asyncio
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from enum import Enum
from typing import Any, Protocol

import confluent_kafka as ck

from qbus.aio import Consumer
from qbus.errors import ApiError, ErrorCode, QbusError

_POLL_S = 0.1
_COMMIT_S = 1.0
_INSIST_S = 30.0
"""For how long a member that gives partitions up tries to commit."""
_PAUSE_S = 0.25
_EXPELLED = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
_printing = threading.Lock()


class Wish(Enum):
    """What a member is to be."""

    SUBSCRIBED = "subscribe"
    IDLE = "unsubscribe"
    GONE = "leave"


class Diary:
    """What a member has read and is to commit, and the lines that tell of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wish = Wish.SUBSCRIBED
        self._next: dict[int, int] = {}
        self._committed_at = time.monotonic()

    def tell(self, what: str, offsets: Mapping[int, int] | Iterable[int] = ()) -> None:
        """Print what happens now."""
        found = offsets if isinstance(offsets, Mapping) else dict.fromkeys(offsets, -1)
        line = json.dumps([self.name, what, time.monotonic(), found])
        with _printing:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

    def read(self, partition: int, offset: int) -> None:
        """Note a record."""
        self.tell("read", {partition: offset})
        self._next[partition] = offset + 1

    def due(self) -> dict[int, int]:
        """Return what to commit; nothing if that was done lately."""
        if time.monotonic() - self._committed_at < _COMMIT_S:
            return {}
        self._committed_at = time.monotonic()
        return dict(self._next)

    def of(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return what to commit of these partitions."""
        return {one: self._next[one] for one in partitions if one in self._next}

    def refused(self, offsets: Mapping[int, int], error: object, *, is_expelled: bool) -> None:
        """Offsets could not be committed: the next commit covers them, or another member reads."""
        print(f"{self.name} cannot commit {offsets}: {error}", file=sys.stderr, flush=True)
        if is_expelled:
            self.tell("expelled")

    def committed(self, offsets: Mapping[int, int]) -> None:
        """Offsets are stored: they need no further commit."""
        self.tell("committed", offsets)
        for partition, offset in offsets.items():
            if self._next.get(partition) == offset:
                del self._next[partition]

    def gone(self, what: str, partitions: list[int]) -> None:
        """Others have these partitions: they were ``revoked`` or ``lost``."""
        for one in partitions:
            self._next.pop(one, None)
        self.tell(what, partitions)


class Kind(Protocol):
    """Where members of one client live."""

    def join(self, diary: Diary) -> None:
        """Have a member begin."""

    def wait(self) -> None:
        """Return when all that were told to leave have."""


class Librdkafka:
    """Members by librdkafka, each in a thread."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._where = bootstrap, topic, group
        self._threads: list[threading.Thread] = []

    def join(self, diary: Diary) -> None:
        member = _LibrdkafkaMember(diary, *self._where)
        self._threads.append(threading.Thread(target=_or_end, args=(member.run,), daemon=True))
        self._threads[-1].start()

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()


class _LibrdkafkaMember:
    def __init__(self, diary: Diary, bootstrap: str, topic: str, group: str) -> None:
        self._diary = diary
        self._topic = topic
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": diary.name,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 1_000,
                "log_level": 2,
            }
        )

    def run(self) -> None:
        diary, is_subscribed = self._diary, False
        while diary.wish is not Wish.GONE:
            if is_subscribed != (diary.wish is Wish.SUBSCRIBED):
                is_subscribed = not is_subscribed
                self._subscribe() if is_subscribed else self._consumer.unsubscribe()
            message = self._consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                diary.read(partition, offset)
            self._commit(diary.due())
        diary.tell("leaving")
        self._consumer.close()
        diary.tell("left")

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def _commit(self, offsets: dict[int, int]) -> bool:
        """Commit; return whether all is stored. Otherwise the next commit covers it."""
        if not offsets:
            return True
        places = [ck.TopicPartition(self._topic, one, at) for one, at in offsets.items()]
        self._diary.tell("committing", offsets)
        try:
            done = self._consumer.commit(offsets=places, asynchronous=False)
        except ck.KafkaException as error:
            code = error.args[0].code()
            self._diary.refused(offsets, error, is_expelled=code in _EXPELLED)
            return False
        self._diary.committed({one.partition: one.offset for one in done or () if not one.error})
        return all(one.error is None for one in done or ())

    def _assigned(self, _consumer: Any, places: list[ck.TopicPartition]) -> None:
        self._diary.tell("assigned", [one.partition for one in places])

    def _revoked(self, _consumer: Any, places: list[ck.TopicPartition]) -> None:
        partitions = [one.partition for one in places]
        deadline = time.monotonic() + _INSIST_S
        while not self._commit(self._diary.of(partitions)) and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
        self._diary.gone("revoked", partitions)

    def _lost(self, _consumer: Any, places: list[ck.TopicPartition]) -> None:
        self._diary.gone("lost", [one.partition for one in places])


class Qbus:
    """Members by Qbus's own client, all in one event loop."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._where = bootstrap, topic, group
        self._loop = asyncio.new_event_loop()
        self._tasks: list[futures.Future[None]] = []
        threading.Thread(target=_or_end, args=(self._loop.run_forever,), daemon=True).start()

    def join(self, diary: Diary) -> None:
        member = _QbusMember(diary, *self._where)
        self._tasks.append(asyncio.run_coroutine_threadsafe(_or_end_async(member), self._loop))

    def wait(self) -> None:
        for task in self._tasks:
            task.result()


class _QbusMember:
    def __init__(self, diary: Diary, bootstrap: str, topic: str, group: str) -> None:
        self._diary = diary
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group
        self._consumer: Consumer

    async def run(self) -> None:
        async with Consumer(
            self._bootstrap,
            client_id=self._diary.name,
            group=self._group,
            group_protocol="consumer",
            offset_reset="earliest",
            auto_commit=False,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
        ) as self._consumer:
            await self._go_on()
            self._diary.tell("leaving")
        self._diary.tell("left")

    async def _go_on(self) -> None:
        diary, is_subscribed = self._diary, False
        while diary.wish is not Wish.GONE:
            if is_subscribed and diary.wish is Wish.IDLE:
                await self._consumer.unsubscribe()
            elif not is_subscribed and diary.wish is Wish.SUBSCRIBED:
                self._consumer.subscribe([self._topic])
            is_subscribed = diary.wish is Wish.SUBSCRIBED
            if not is_subscribed:
                await asyncio.sleep(_POLL_S)
                continue
            for batch in await self._consumer.poll(_POLL_S):
                for record in batch:
                    diary.read(record.partition, record.offset)
            await self._commit(diary.due())

    async def _commit(self, offsets: dict[int, int]) -> bool:
        """Commit; return whether all is stored. Otherwise the next commit covers it."""
        if not offsets:
            return True
        self._diary.tell("committing", offsets)
        try:
            await self._consumer.commit({(self._topic, one): at for one, at in offsets.items()})
        except QbusError as error:
            code = error.code if isinstance(error, ApiError) else None
            self._diary.refused(offsets, error, is_expelled=code in _EXPELLED)
            return False
        self._diary.committed(offsets)
        return True

    def _assigned(self, places: Any) -> None:
        self._diary.tell("assigned", [one.partition for one in places])

    async def _revoked(self, places: Any) -> None:
        partitions = [one.partition for one in places]
        offsets, deadline = self._diary.of(partitions), time.monotonic() + _INSIST_S
        while time.monotonic() < deadline:
            if await self._commit(offsets):
                break
            await asyncio.sleep(_PAUSE_S)
        self._diary.gone("revoked", partitions)

    def _lost(self, places: Any) -> None:
        self._diary.gone("lost", [one.partition for one in places])


KINDS: dict[str, type[Librdkafka | Qbus]] = {"librdkafka": Librdkafka, "qbus": Qbus}


def main() -> None:
    """Do what standard input says. A member that fails ends the process."""
    kind, *where = sys.argv[1:]
    members: Kind = KINDS[kind](*where)
    diaries: dict[str, Diary] = {}
    for line in sys.stdin:
        word, name = line.split()
        if word == "join":
            diaries[name] = Diary(name)
            members.join(diaries[name])
        else:
            diaries[name].wish = Wish(word)
    for diary in diaries.values():
        diary.wish = Wish.GONE
    members.wait()


def _or_end(work: Callable[[], None]) -> None:
    """Do the work of a thread; what it raises ends the process, which is noticed."""
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


async def _or_end_async(member: _QbusMember) -> None:
    try:
        await member.run()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    main()
