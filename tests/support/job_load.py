"""Workers and adders of jobs over RESP, in processes that may be killed; and what they saw.

Each process appends what it sees to a journal of its own, line by line, before it goes on: so what
a killed one saw is known. Times are of the machine's monotonic clock, in nanoseconds::

    + NUMBER            a job was added, for sure
    ? NUMBER            adding it failed, or was not answered: it may be there, or twice
    g NUMBER FROM TO    a job was given out, asked for at FROM and here at TO
    a NUMBER AT         it is acknowledged at AT, which is not answered yet
    d NUMBER AT         the acknowledgement was answered: it is done, and it was not before

Run as a module it is such a process: ``work`` or ``add``, then options as JSON.
"""

import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hiredis

from qbus.broker.disque import resp

Nodes = Sequence[tuple[str, int]]

_ANSWER_S = 15.0
_PAUSE_S = 0.05


class Node:
    """A connection to whichever node answers; one that fails is left for the next."""

    def __init__(self, nodes: Nodes, first: int) -> None:
        self._nodes = itertools.cycle([*nodes[first:], *nodes[:first]])
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._replies = hiredis.Reader()

    async def ask(self, *words: str | bytes | int) -> Any:
        """The reply, of which errors are exceptions that are returned. Raises OSError."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                if self._writer is None:
                    await self._connect()
                assert self._writer is not None
                assert self._reader is not None
                self._writer.write(resp.command(words))
                while (reply := self._replies.gets()) is False:
                    data = await self._reader.read(1 << 16)
                    if not data:
                        raise ConnectionError("closed")
                    self._replies.feed(data)
                return reply
        except (OSError, TimeoutError) as error:
            self.close()
            raise ConnectionError(str(error)) from error

    async def _connect(self) -> None:
        host, port = next(self._nodes)
        self._reader, self._writer = await asyncio.open_connection(host, port)
        self._replies = hiredis.Reader()

    def close(self) -> None:
        """Close the connection; the next command goes to the next node."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._writer = None


class Journal:
    """Where a process tells what it saw."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, *words: str | int) -> None:
        """Append a line; it is there when this returns, whatever happens to the process."""
        os.write(self._file, f"{' '.join(map(str, words))}\n".encode())


async def _work(node: Node, journal: Journal, queue: str) -> None:
    while True:
        asked = time.monotonic_ns()
        try:
            jobs = await node.ask("GETJOB", "TIMEOUT", 1000, "COUNT", 1, "FROM", queue)
            if not isinstance(jobs, list):
                await asyncio.sleep(0 if jobs is None else _PAUSE_S)
                continue
            for _, job, body in jobs:
                number = int(body)
                journal.note("g", number, asked, time.monotonic_ns())
                await _acknowledge(node, journal, job, number)
        except OSError:
            await asyncio.sleep(_PAUSE_S)


async def _acknowledge(node: Node, journal: Journal, job: bytes, number: int) -> None:
    journal.note("a", number, time.monotonic_ns())
    if await node.ask("ACKJOB", job) == 1:
        journal.note("d", number, time.monotonic_ns())


async def _add(
    node: Node, journal: Journal, queue: str, numbers: Sequence[int], options: Sequence[str]
) -> None:
    for number in numbers:
        while True:
            reply: Any = None
            with suppress(OSError):
                reply = await node.ask("ADDJOB", queue, number, 10_000, *options)
            if isinstance(reply, bytes):
                journal.note("+", number)
                break
            journal.note("?", number)
            await asyncio.sleep(_PAUSE_S)


async def _run(kind: str, options: dict[str, Any]) -> None:
    journal = Journal(options["journal"])
    nodes = [(str(host), int(port)) for host, port in options["nodes"]]
    tasks = options["tasks"]
    everyone = [Node(nodes, number % len(nodes)) for number in range(tasks)]
    if kind == "work":
        await asyncio.gather(*(_work(node, journal, options["queue"]) for node in everyone))
    else:
        numbers = range(options["first"], options["first"] + options["count"])
        await asyncio.gather(
            *(
                _add(node, journal, options["queue"], numbers[at::tasks], options["words"])
                for at, node in enumerate(everyone)
            )
        )


class JobProcess:
    """Such a process."""

    def __init__(self, kind: str, options: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "tests.support.job_load", kind, json.dumps(options)]
        self._process = subprocess.Popen(command)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it, whatever it is about to do."""
        self._process.kill()
        self._process.wait(30)


@dataclass
class Seen:
    """What all processes saw of one queue."""

    added: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)
    given: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    tried: set[int] = field(default_factory=set)
    done: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def read(self, path: Path) -> None:
        """Take in a journal; a line that is cut, for its process was killed, does not count."""
        text = path.read_bytes()
        for line in text[: text.rfind(b"\n") + 1].splitlines():
            kind, first, *rest = line.split()
            number = int(first)
            if kind == b"+":
                self.added.add(number)
            elif kind == b"?":
                self.unsure.add(number)
            elif kind == b"g":
                self.given[number].append((int(rest[0]), int(rest[1])))
            elif kind == b"a":
                self.tried.add(number)
            else:
                self.done[number].append(int(rest[0]))

    # What must not be

    def lost(self) -> set[int]:
        """Jobs that were added, and not acknowledged by anybody."""
        return self.added - self.done.keys() - self.tried

    def done_twice(self) -> set[int]:
        """Jobs whose acknowledgement was told twice that it was the first; added once for sure."""
        return {number for number, times in self.done.items() if len(times) > 1} - self.unsure

    def given_after_done(self) -> set[int]:
        """Jobs that somebody asked for and got after their acknowledgement was answered."""
        return {
            number
            for number, times in self.done.items()
            if any(asked > min(times) for asked, _ in self.given[number])
        } - self.unsure

    def given_twice(self) -> set[int]:
        """Jobs that were given out more than once."""
        return {number for number, times in self.given.items() if len(times) > 1} - self.unsure

    def given_within_lock(self, lock_s: float, breaks: Sequence[tuple[int, int]]) -> set[int]:
        """Jobs that two had at a time; ``breaks``: from when to when leaders may have changed.

        A new leader knows no locks, so it may give out again what its predecessor had given out.
        """
        found = set()
        for number, times in self.given.items():
            for (asked, _), (_, again) in itertools.pairwise(sorted(times)):
                is_early = again < asked + lock_s * 1e9
                if is_early and not any(begin < again and end > asked for begin, end in breaks):
                    found.add(number)
        return found - self.unsure


class JobLoad:
    """Adders and workers of one queue in many processes, some of which are killed meanwhile."""

    def __init__(
        self, directory: Path, nodes: Nodes, queue: str, words: Sequence[str], seed: int
    ) -> None:
        self._directory = directory
        self._nodes = list(nodes)
        self._queue = queue
        self._words = list(words)
        self._random = random.Random(seed)
        self._journals = itertools.count()
        self._workers: list[JobProcess] = []
        self._adders: list[JobProcess] = []
        self.deaths = 0

    def _start(self, kind: str, tasks: int, **options: Any) -> JobProcess:
        journal = self._directory / f"{self._queue}-{next(self._journals)}.journal"
        fixed = {"journal": str(journal), "nodes": self._nodes, "queue": self._queue}
        return JobProcess(kind, {**fixed, "tasks": tasks, **options})

    def work(self, processes: int, tasks: int) -> None:
        """Start so many processes with so many workers each."""
        self._workers += [self._start("work", tasks) for _ in range(processes)]

    def add(self, count: int, processes: int, tasks: int) -> None:
        """Have so many jobs added, at once and by so many."""
        part = -(-count // processes)
        self._adders += [
            self._start(
                "add", tasks, first=first, count=min(part, count - first), words=self._words
            )
            for first in range(0, count, part)
        ]

    def kill_worker(self, tasks: int) -> None:
        """Kill one of the processes of workers, and start another one."""
        at = self._random.randrange(len(self._workers))
        self._workers[at].kill()
        self._workers[at] = self._start("work", tasks)
        self.deaths += 1

    @property
    def is_added(self) -> bool:
        """Whether all jobs were added."""
        return all(adder.is_over for adder in self._adders)

    def seen(self) -> Seen:
        """What all have seen so far."""
        seen = Seen()
        for path in self._paths():
            seen.read(path)
        return seen

    def _paths(self) -> Iterator[Path]:
        return iter(sorted(self._directory.glob(f"{self._queue}-*.journal")))

    def stop(self) -> Seen:
        """End all processes; what they saw."""
        for process in (*self._workers, *self._adders):
            process.kill()
        return self.seen()


def histogram(seen: Seen) -> str:
    """How many jobs were given out how often, for the log of a test."""
    return str(sorted(Counter(map(len, seen.given.values())).items()))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(sys.argv[1], json.loads(sys.argv[2])))
