"""Loads RQ over Redis as ``main.go`` loads other peers, with the same commands: HOST:PORT SIZE.

A worker is a process with RQ's ``SimpleWorker``, which runs jobs itself (the one of ``rq worker``
forks for each job, which takes it milliseconds). Those that add jobs are threads of this process.
"""

import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from threading import Lock

from redis import Redis
from rq import Queue, SimpleWorker

GRACE_S = 10.0
CHUNK = 500
_NUMBER = 12  # digits that a job begins with
_DUE = 19  # digits of when it is due, in nanoseconds since the Unix epoch

_context = multiprocessing.get_context("fork")


class Worker(SimpleWorker):
    """A worker that tells when it is ready."""

    def register_birth(self) -> None:
        """As of the base; then tell that it is ready."""
        super().register_birth()
        _told.send(None)


_told: Connection
"""Of a worker's process: where it tells of the jobs that it has done."""


def job(body: str) -> None:
    """Do a job: tell its number, and how long after it was due it came, in nanoseconds."""
    due = int(body[_NUMBER + 1 : _NUMBER + 1 + _DUE])
    _told.send((int(body[:_NUMBER]), time.time_ns() - due))


def run_worker(host: str, port: int, queue: str, told: Connection) -> None:
    """Be a worker, until the process is ended."""
    global _told  # noqa: PLW0603 - of this process alone
    _told = told
    redis = Redis(host, port)
    worker = Worker([Queue(queue, connection=redis)], connection=redis)
    worker.work(logging_level="ERROR")


class Workers:
    """So many processes that take jobs, until they are stopped."""

    def __init__(self, host: str, port: int, queue: str, count: int) -> None:
        self._pipes: list[Connection] = []
        self._processes: list[ForkProcess] = []
        for _ in range(count):
            ours, theirs = _context.Pipe(duplex=False)
            process = _context.Process(
                target=run_worker, args=(host, port, queue, theirs), daemon=True
            )
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def wait_ready(self) -> None:
        """Return when each asks for jobs."""
        for pipe in self._pipes:
            pipe.recv()

    def take(self, count: int, deadline: float) -> tuple[list[tuple[int, int]], float]:
        """What is told of up to so many jobs, and when the last came."""
        done: list[tuple[int, int]] = []
        last = time.perf_counter()
        while len(done) < count:
            ready = wait(self._pipes, max(deadline - time.perf_counter(), 0.0))
            if not ready:
                break
            for pipe in self._pipes:
                while pipe.poll():
                    done.append(pipe.recv())
            last = time.perf_counter()
        return done, last

    def stop(self) -> None:
        """End all of them."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()


class Load:
    """Answers commands."""

    def __init__(self, address: str, size: int) -> None:
        host, port = address.rsplit(":", 1)
        self._address = host, int(port)
        self._size = size
        self._lock = Lock()
        self._queue = ""
        self._added = self._all_done = self._sum_added = self._sum_done = 0
        self._adders: list[Queue] = []

    def _body(self, due_ns: int = 0) -> str:
        with self._lock:
            self._added += 1
            self._sum_added += self._added
            number = self._added
        return f"{number:0{_NUMBER}} {due_ns:0{_DUE}} ".ljust(self._size, "x")

    def queue(self, name: str) -> dict[str, float]:
        """What follows is about this queue."""
        self._queue = name
        self._added = self._all_done = self._sum_added = self._sum_done = 0
        return {}

    def open(self, workers: str) -> dict[str, float]:
        """Connect so many that add jobs; as many take them later."""
        self._adders = [
            Queue(self._queue, connection=Redis(*self._address)) for _ in range(int(workers))
        ]
        return {}

    def _in_threads(self, work: Callable[[int, Queue], None]) -> None:
        with ThreadPoolExecutor(len(self._adders)) as pool:
            for outcome in [pool.submit(work, *one) for one in enumerate(self._adders)]:
                outcome.result()

    def add(self, seconds: str) -> dict[str, float]:
        """Each adds one job after another."""
        began, before = time.perf_counter(), self._added
        end = began + float(seconds)

        def add(_: int, queue: Queue) -> None:
            while time.perf_counter() < end:
                queue.enqueue(job, self._body(), result_ttl=0)

        self._in_threads(add)
        return {"jobs": self._added - before, "seconds": time.perf_counter() - began}

    def work(self, count: str, seconds: str) -> dict[str, float]:
        """Each takes a job and does it, until so many are done."""
        workers = Workers(*self._address, self._queue, len(self._adders))
        try:
            workers.wait_ready()
            began = time.perf_counter()
            done, last = workers.take(int(count), began + float(seconds))
        finally:
            workers.stop()
        self._all_done += len(done)
        self._sum_done += sum(number for number, _ in done)
        if self._all_done >= self._added and self._sum_done != self._sum_added:
            raise RuntimeError("a job was lost, or came twice")
        return {"jobs": len(done), "seconds": max(last - began, 1e-9)}

    def steady(self, rate: str, seconds: str) -> dict[str, float]:
        """All add so many jobs a second, and take them: the time from add to get."""
        workers = Workers(*self._address, self._queue, len(self._adders))
        count, before = int(float(rate) * float(seconds)), self._added
        step = len(self._adders)
        try:
            workers.wait_ready()
            start = time.time_ns() + 100_000_000
            end = time.perf_counter() + 0.1 + float(seconds) + GRACE_S

            def add(place: int, queue: Queue) -> None:
                for number in range(place, count, step):
                    due = start + int(number / float(rate) * 1e9)
                    time.sleep(max((due - time.time_ns()) / 1e9, 0.0))
                    if time.perf_counter() > end:
                        return
                    queue.enqueue(job, self._body(due), result_ttl=0)

            with ThreadPoolExecutor(1) as taking:
                taken = taking.submit(workers.take, count, end)
                self._in_threads(add)
                done, _ = taken.result()
        finally:
            workers.stop()
        if not done:
            raise RuntimeError("no job came")
        late = sorted(nanoseconds / 1e6 for _, nanoseconds in done)
        return {
            "added": self._added - before,
            "jobs": len(late),
            "p50_ms": late[len(late) // 2],
            "p99_ms": late[len(late) * 99 // 100],
            "most_ms": late[-1],
        }

    def fill(self, count: str, seconds: str) -> dict[str, float]:
        """One adds so many jobs, many in a request."""
        began, filled = time.perf_counter(), 0
        while filled < int(count) and time.perf_counter() - began < float(seconds):
            some = min(CHUNK, int(count) - filled)
            self._adders[0].enqueue_many(
                [Queue.prepare_data(job, (self._body(),), result_ttl=0) for _ in range(some)]
            )
            filled += some
        return {"jobs": filled, "seconds": time.perf_counter() - began}

    def close(self) -> dict[str, float]:
        """Close the connections."""
        for adder in self._adders:
            adder.connection.close()
        self._adders = []
        return {}


def main() -> None:
    """Answer a command a line, with one JSON object a line."""
    load = Load(sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        name, *words = line.split()
        print(json.dumps(getattr(load, name)(*words)), flush=True)


if __name__ == "__main__":
    main()
