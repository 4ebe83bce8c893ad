"""Members of a group in a process of its own: ``python -m perf.rebalance_load BOOTSTRAP JSON``.

It takes a word a line: ``join`` has all members subscribe, ``report`` prints what they have read
since the last report, ``leave`` closes them. Times are of the machine's monotonic clock, which all
processes share.
"""

import asyncio
import json
import subprocess
import sys
import threading
import time
from typing import Any, NamedTuple

SESSION_MS = 6_000
HEARTBEAT_MS = 1_000
_POLL_S = 0.1


class Read(NamedTuple):
    """A member has read a record. Times are monotonic seconds."""

    at: float
    partition: int
    member: str


class Crew:
    """``count`` members in a process, made and not yet in the group.

    ``options``: ``client`` (librdkafka or qbus), ``protocol`` and ``topic``.
    """

    def __init__(self, bootstrap: str, name: str, count: int, **options: str) -> None:
        self.count = count
        arguments = json.dumps({"name": name, "count": count, **options})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "perf.rebalance_load", bootstrap, arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def join(self) -> float:
        """Have them join; return when."""
        return self._say("join")

    def leave(self) -> float:
        """Have them leave; return when."""
        return self._say("leave")

    def die(self) -> float:
        """Kill the process; return when."""
        now = time.monotonic()
        self._process.kill()
        self._process.communicate()
        return now

    def report(self) -> list[Read]:
        """Return what was read since the last report."""
        self._say("report")
        return [Read(*one) for one in self._answer()]

    def end(self) -> None:
        """Kill the process if it runs."""
        if self._process.poll() is None:
            self.die()

    def _say(self, word: str) -> float:
        assert self._process.stdin is not None
        now = time.monotonic()
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return now

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


class _Members:
    """What members have read, and whether they are to go on."""

    def __init__(self, bootstrap: str, name: str, topic: str, protocol: str, count: int) -> None:
        self.bootstrap = bootstrap
        self.names = [f"{name}-{number}" for number in range(count)]
        self.topic = topic
        self.protocol = protocol
        self.leaving = threading.Event()
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
        threading.Thread(target=_consume, args=(members, name), daemon=True)
        for name in members.names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _consume(members: _Members, name: str) -> None:
    import confluent_kafka as ck

    session = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    consumer = ck.Consumer(
        {
            "bootstrap.servers": members.bootstrap,
            "group.id": members.topic,
            "client.id": name,
            "group.protocol": members.protocol,
            "auto.offset.reset": "latest",
            "log_level": 2,
            **(session if members.protocol == "classic" else {}),
        }
    )
    consumer.subscribe([members.topic])
    while not members.leaving.is_set():
        message = consumer.poll(_POLL_S)
        if message is not None and message.error() is None:
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
    working = threading.Thread(target=run, args=(members,), daemon=True)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "join":
            working.start()
        elif word == "report":
            print(json.dumps(members.take()), flush=True)
        elif word == "leave":
            members.leaving.set()
            working.join()


if __name__ == "__main__":
    main()
