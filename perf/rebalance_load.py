"""Members of a group in a process of its own: ``python -m perf.rebalance_load BOOTSTRAP JSON``.

It takes a word a line: ``join`` has all members subscribe, ``report`` prints what they have read
since the last report, and their last errors, ``leave`` closes them. A member that fails ends the
process. Times are of the machine's monotonic clock, which all
processes share.
"""

import asyncio
import json
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from perf import quiet
from perf.load_process import LoadProcess

SESSION_MS = 6_000
HEARTBEAT_MS = 1_000
_POLL_S = 0.1
_REPORT_S = 60.0
_LEAVE_S = 60.0
_ERRORS = 5


class Read(NamedTuple):
    """A member has read a record. Times are monotonic seconds."""

    at: float
    partition: int
    member: str


class Crew:
    """``count`` members in a process, made and not yet in the group.

    ``options``: ``client`` (librdkafka or qbus), ``protocol`` and ``topic``. ``errors``: what
    members were told lately that went wrong, and went on. All methods raise
    :class:`~perf.load_process.LoadFailedError` when the process has failed.
    """

    def __init__(self, bootstrap: str, name: str, count: int, **options: str) -> None:
        self.count = count
        self.errors: list[str] = []
        arguments = json.dumps({"name": name, "count": count, **options})
        self._load = LoadProcess(name, ["-m", "perf.rebalance_load", bootstrap, arguments])
        self._load.line()

    def join(self) -> float:
        """Have them join; return when."""
        return self._load.say("join")

    def leave(self) -> float:
        """Have them leave; return when."""
        return self._load.say("leave")

    def left(self) -> None:
        """Return when they have left."""
        self._load.wait(_LEAVE_S)

    def die(self) -> float:
        """Kill the process; return when."""
        return self._load.kill()

    def report(self) -> list[Read]:
        """Return what was read since the last report."""
        self._load.say("report")
        reads, self.errors = json.loads(self._load.line(_REPORT_S))
        return [Read(*one) for one in reads]

    def end(self) -> None:
        """Kill the process if it runs."""
        self._load.kill()


class _Members:
    """What members have read, and whether they are to go on."""

    def __init__(self, bootstrap: str, name: str, topic: str, protocol: str, count: int) -> None:
        self.bootstrap = bootstrap
        self.names = [f"{name}-{number}" for number in range(count)]
        self.topic = topic
        self.protocol = protocol
        self.leaving = threading.Event()
        self.errors: deque[str] = deque(maxlen=_ERRORS)
        self._read: list[Read] = []

    def saw(self, partition: int, member: str) -> None:
        """Note a record."""
        self._read.append(Read(time.monotonic(), partition, member))

    def take(self) -> list[Read]:
        """Return what was read since the last time."""
        taken, self._read = self._read, []
        return taken


def _run_librdkafka(members: _Members) -> None:
    """A thread for each consumer of librdkafka."""
    threads = [
        threading.Thread(target=_or_end, args=(partial(_consume, members, name),), daemon=True)
        for name in members.names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _or_end(work: Callable[[], None]) -> None:
    """Do the work of a thread; what it raises ends the process, which tells of it."""
    try:
        work()
    except BaseException:  # noqa: BLE001 - nothing may be lost with the thread
        traceback.print_exc()
        os._exit(1)


def _consume(members: _Members, name: str) -> None:
    import confluent_kafka as ck

    session = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    consumer = ck.Consumer(
        {
            **quiet.at(members.bootstrap),
            "group.id": members.topic,
            "client.id": name,
            "group.protocol": members.protocol,
            "auto.offset.reset": "latest",
            **(session if members.protocol == "classic" else {}),
        }
    )
    consumer.subscribe([members.topic])
    while not members.leaving.is_set():
        message = consumer.poll(_POLL_S)
        if message is None:
            continue
        if (error := message.error()) is not None:
            members.errors.append(f"{name}: {error}")
        else:
            partition = message.partition()
            assert partition is not None
            members.saw(partition, name)
    consumer.close()


def _run_qbus(members: _Members) -> None:
    """All consumers of Qbus's own client in one event loop."""

    async def run_all() -> None:
        await asyncio.gather(*(_consume_async(members, name) for name in members.names))

    asyncio.run(run_all())


async def _consume_async(members: _Members, name: str) -> None:
    from qbus.aio import Consumer

    async with Consumer(
        members.bootstrap,
        group=members.topic,
        client_id=name,
        group_protocol=members.protocol,  # type: ignore[arg-type] # one of the two
        offset_reset="latest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    ) as consumer:
        consumer.subscribe([members.topic])
        while not members.leaving.is_set():
            for batch in await consumer.poll(_POLL_S):
                for record in batch:
                    members.saw(record.partition, name)


RUNS = {"librdkafka": _run_librdkafka, "qbus": _run_qbus}


def main() -> None:
    """Take words from standard input."""
    options = json.loads(sys.argv[2])
    run = RUNS[options.pop("client")]
    members = _Members(sys.argv[1], **options)
    working = threading.Thread(target=_or_end, args=(partial(run, members),), daemon=True)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "join":
            working.start()
        elif word == "report":
            print(json.dumps([members.take(), [*members.errors]]), flush=True)
        elif word == "leave":
            members.leaving.set()
            working.join()
            return


if __name__ == "__main__":
    main()
