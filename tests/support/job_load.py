"""Workers and adders of jobs over RESP, in processes that may be killed.

Each process appends what it sees to a journal of its own (:mod:`.job_audit`) before it goes on: so
what a killed one saw is known. Run as a module it is such a process: ``work`` or ``add``, then
options as JSON.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import hiredis

from qbus.broker.disque import resp

from .job_audit import Seen

Nodes = Sequence[tuple[str, int]]
Words = Sequence[str | bytes | int]

_ANSWER_S = 15.0
_PAUSE_S = 0.05
_MOST_WORK_S = 0.05
_WORKS_ON = 0.1
"""Of how many batches workers have anything to do but to acknowledge them."""

COUNTS = (1, 16, 4, 1)
"""How many jobs workers take at a time, one after the other."""
_ADDED_AT_ONCE = 16


class Node:
    """A connection to whichever node answers; one that fails is left for the next."""

    def __init__(self, nodes: Nodes, first: int) -> None:
        self._nodes = itertools.cycle([*nodes[first:], *nodes[:first]])
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._replies = hiredis.Reader()

    async def ask(self, *words: str | bytes | int) -> Any:
        """The reply, of which errors are exceptions that are returned. Raises OSError."""
        replies = await self.ask_all([words])
        if not replies:
            raise ConnectionError("no reply")
        return replies[0]

    async def ask_all(self, commands: Iterable[Words]) -> list[Any]:
        """The replies to commands that are sent at once; fewer where the connection failed."""
        sent = [resp.command(words) for words in commands]
        replies: list[Any] = []
        try:
            async with asyncio.timeout(_ANSWER_S):
                if self._writer is None:
                    await self._connect()
                assert self._writer is not None
                assert self._reader is not None
                self._writer.write(b"".join(sent))
                while len(replies) < len(sent):
                    reply = self._replies.gets()
                    if reply is not False:
                        replies.append(reply)
                        continue
                    data = await self._reader.read(1 << 16)
                    if not data:
                        raise ConnectionError("closed")
                    self._replies.feed(data)
        except (OSError, TimeoutError):
            self.close()
        return replies

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

    def note(self, lines: Iterable[str]) -> None:
        """Append lines; they are there when this returns, whatever happens to the process."""
        os.write(self._file, "".join(f"{line}\n" for line in lines).encode())


class Worker:
    """Takes ``count`` jobs at a time, and does them; every ``poison``-th it refuses (0: none)."""

    def __init__(self, node: Node, journal: Journal, queue: str, count: int, poison: int) -> None:
        self._node = node
        self._journal = journal
        self._question = ("GETJOB", "TIMEOUT", 1000, "COUNT", count, "WITHCOUNTERS", "FROM", queue)
        self._poison = poison

    async def run(self) -> None:
        """Work until the process is killed."""
        while True:
            asked = time.monotonic_ns()
            try:
                jobs = await self._node.ask(*self._question)
            except OSError:
                jobs = OSError()
            if isinstance(jobs, list):
                await self._do(jobs, asked)
            elif jobs is not None:
                await asyncio.sleep(_PAUSE_S)

    async def _do(self, jobs: Sequence[Any], asked: int) -> None:
        here = time.monotonic_ns()
        numbers = [int(job[2]) for job in jobs]
        notes = [
            f"g {number} {asked} {here} {job[4]} {job[6]}"
            for number, job in zip(numbers, jobs, strict=True)
        ]
        if random.random() < _WORKS_ON:
            self._journal.note(notes)
            notes = []
            await asyncio.sleep(random.uniform(0, _MOST_WORK_S))
        ids = [job[1] for job in jobs]
        notes += [
            f"r {number}" if self._refuses(number) else f"a {number} {job.decode()}"
            for number, job in zip(numbers, ids, strict=True)
        ]
        self._journal.note(notes)
        replies = await self._node.ask_all(
            ("NACK" if self._refuses(number) else "ACKJOB", job)
            for number, job in zip(numbers, ids, strict=True)
        )
        now = time.monotonic_ns()
        self._journal.note(
            f"{'n' if self._refuses(number) else 'd'} {number} {now}"
            for number, reply in zip(numbers, replies, strict=False)
            if reply == 1
        )

    def _refuses(self, number: int) -> bool:
        return is_poison(number, self._poison)


def is_poison(number: int, poison: int) -> bool:
    """Whether a job is one of those that all workers refuse."""
    return poison > 0 and number % poison == poison - 1


async def _add(
    node: Node, journal: Journal, words: Words, numbers: Sequence[int], is_over: asyncio.Event
) -> None:
    queue, *options = words
    for first in range(0, len(numbers), _ADDED_AT_ONCE):
        if is_over.is_set():
            break
        left = list(numbers[first : first + _ADDED_AT_ONCE])
        while left:
            asked = time.monotonic_ns()
            replies = await node.ask_all(
                ("ADDJOB", queue, number, 10_000, *options) for number in left
            )
            added = {
                number
                for number, reply in zip(left, replies, strict=False)
                if isinstance(reply, bytes)
            }
            journal.note(
                f"+ {number} {asked}" if number in added else f"? {number}" for number in left
            )
            left = [number for number in left if number not in added]
            if left:
                await asyncio.sleep(_PAUSE_S)


async def _run(kind: str, options: dict[str, Any]) -> None:
    journal = Journal(options["journal"])
    nodes = [(str(host), int(port)) for host, port in options["nodes"]]
    tasks, queue = options["tasks"], options["queue"]
    everyone = [Node(nodes, number % len(nodes)) for number in range(tasks)]
    if kind == "work":
        counts, poison = itertools.cycle(COUNTS), options["poison"]
        workers = [Worker(node, journal, queue, next(counts), poison) for node in everyone]
        await asyncio.gather(*(worker.run() for worker in workers))
    else:
        numbers = range(options["first"], options["first"] + options["count"])
        words, is_over = [queue, *options["words"]], asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_over.set)
        await asyncio.gather(
            *(
                _add(node, journal, words, numbers[at::tasks], is_over)
                for at, node in enumerate(everyone)
            )
        )


async def states_of(nodes: Nodes, ids: Iterable[bytes]) -> list[str]:
    """What the first node that answers says of jobs: their states, or ``unknown``."""
    node = Node(nodes, 0)
    replies: list[Any] = []
    wanted = list(ids)
    for _ in nodes:
        replies = await node.ask_all(("SHOW", job) for job in wanted)
        if len(replies) == len(wanted):
            break
    node.close()
    return [_state(reply) for reply in replies]


def _state(reply: Any) -> str:
    if not isinstance(reply, list):
        return "unknown" if reply is None else str(reply)
    state: bytes = reply[reply.index(b"state") + 1]
    return state.decode()


class JobProcess:
    """Such a process."""

    def __init__(self, kind: str, options: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "tests.support.job_load", kind, json.dumps(options)]
        self._process = subprocess.Popen(command)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def end(self) -> None:
        """Have an adder end with what it has begun."""
        self._process.terminate()

    def kill(self) -> None:
        """End it, whatever it is about to do."""
        self._process.kill()
        self._process.wait(30)


class JobLoad:
    """Adders and workers of one queue in many processes, some of which are killed meanwhile.

    ``words``: the options of each job. ``poison``: every so many-th job is refused by all workers.
    """

    def __init__(
        self,
        directory: Path,
        nodes: Nodes,
        queue: str,
        words: Sequence[str],
        seed: int,
        *,
        poison: int = 0,
    ) -> None:
        self._directory = directory
        self.nodes = list(nodes)
        self._queue = queue
        self._words = list(words)
        self._random = random.Random(seed)
        self._poison = poison
        self._journals = itertools.count()
        self._workers: list[JobProcess] = []
        self._adders: list[JobProcess] = []
        self._seen = Seen()
        self.deaths = 0

    def _start(self, kind: str, tasks: int, **options: Any) -> JobProcess:
        journal = self._directory / f"{self._queue}-{next(self._journals)}.journal"
        fixed = {"journal": str(journal), "nodes": self.nodes, "queue": self._queue}
        return JobProcess(kind, {**fixed, "tasks": tasks, **options})

    def _start_worker(self, tasks: int) -> JobProcess:
        return self._start("work", tasks, poison=self._poison)

    def work(self, processes: int, tasks: int) -> None:
        """Start so many processes with so many workers each."""
        self._workers += [self._start_worker(tasks) for _ in range(processes)]

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
        self._workers[at] = self._start_worker(tasks)
        self.deaths += 1

    def end_adding(self) -> None:
        """Have no more jobs added than have been begun."""
        for adder in self._adders:
            adder.end()

    @property
    def is_added(self) -> bool:
        """Whether all jobs were added."""
        return all(adder.is_over for adder in self._adders)

    def seen(self) -> Seen:
        """What all have seen so far: the same object each time, which then knows more."""
        for path in self._paths():
            self._seen.read(path)
        return self._seen

    def undone(self) -> dict[int, str]:
        """Jobs whose acknowledgement nobody heard of, and that the nodes do not say is done."""
        unanswered = self.seen().unanswered()
        states = asyncio.run(states_of(self.nodes, unanswered.values()))
        if len(states) < len(unanswered):
            return dict.fromkeys(unanswered, "no node answers")
        found = dict(zip(unanswered, states, strict=True))
        return {number: state for number, state in found.items() if state not in _DONE}

    def _paths(self) -> Iterator[Path]:
        return iter(sorted(self._directory.glob(f"{self._queue}-*.journal")))

    def stop(self) -> Seen:
        """End all processes; what they saw."""
        for process in (*self._workers, *self._adders):
            process.kill()
        return self.seen()


_DONE = frozenset({"acked", "unknown"})


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(sys.argv[1], json.loads(sys.argv[2])))
