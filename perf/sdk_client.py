"""A client as the load, in a process of its own: ``python -m perf.sdk_client CLIENT.LOAD JSON``.

CLIENT is a module of ``perf.peers`` that ends in ``_client``, LOAD a function of it that takes a
:class:`Load`. Prints what it measured as one JSON object. What the client does before it sends or
reads, such as connecting, is not part of it.
"""

import asyncio
import ctypes
import inspect
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Self

from perf import before, forms
from perf.forms import FORMS, Form, Reading, rows, topic_names

BUFFER_BYTES = 64 * 1024 * 1024
"""What each client may buffer, to send it or ahead of who reads it, where it has a limit."""
BATCH_BYTES = 1_000_000
"""librdkafka's default, which the other peers are the quicker for, too."""
LINGER_MS = 5
"""librdkafka's default, for all of them."""
CALLERS = 50
"""Threads or tasks that wait for each of their records side by side."""
CHUNK = 10_000
"""Records that are handed over at once by those loads that do so."""
PATIENCE = 60.0
"""Seconds without a record after which a load that reads gives up."""

BEFORE = "@before"
"""Ends the name of a client that is to come from the other checkout."""

_STAMP = 20
_READY = b"ready\n"


def run(client: str, load: str, **options: Any) -> dict[str, float]:
    """Run one load in a fresh process and return what it measured."""
    with _started(client, load, options) as process:
        return _result(process)


def run_paced(client: str, **options: Any) -> dict[str, float]:
    """Send at a rate in one process, read in another; return what the reader measured."""
    with _started(client, "read_paced", options) as reader:
        assert reader.stdout is not None
        if reader.stdout.read(len(_READY)) != _READY:
            raise RuntimeError(f"{client} does not read")
        with _started(client, "send_paced", options) as sender:
            _result(sender)
        return _result(reader)


@contextmanager
def _started(client: str, load: str, options: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "perf.sdk_client", f"{client.removesuffix(BEFORE)}.{load}"]
    command.append(json.dumps(options))
    # As installed, so with compiled bytecode, for every client alike.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    if client.endswith(BEFORE):
        assert before.checkout is not None
        environment |= before.environment(before.checkout)
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def _result(process: subprocess.Popen[bytes]) -> dict[str, float]:
    told, _ = process.communicate(timeout=600)
    if process.returncode:
        raise RuntimeError(f"{process.args} ended with {process.returncode}")
    result: dict[str, float] = json.loads(told)
    return result


class Load:
    """What a client is to send or to read, and what that cost."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        size: int,
        *,
        rate: int = 0,
        linger_ms: int = LINGER_MS,
        form: str = "value",
        group: str = "",
        protocol: str = "",
        is_committed: bool = False,
        security: dict[str, str] | None = None,
    ) -> None:
        """``security``: properties with librdkafka's names; the others as of :mod:`perf.forms`."""
        self.bootstrap = bootstrap
        self.topic = topic
        self.count = count
        self.size = size
        self.rate = rate
        self.linger_ms = linger_ms
        self.form: Form = FORMS[form]
        self.reading = Reading(form, protocol, is_committed)
        self.group = group
        self.security = security or {}
        self._result: dict[str, float] = {}
        self._delays: list[float] = []

    def values(self) -> Iterator[bytes]:
        """``count`` values, half random, half repeated: about what logs compress to."""
        return islice(cycle(_some_values(self.size)), self.count)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """``count`` records of the load's form; see :func:`perf.forms.rows`."""
        return rows(self.form, self.topic, _some_values(self.size), self.count)

    def topics(self) -> list[str]:
        """All topics that the load sends to."""
        return topic_names(self.form, self.topic)

    def chunks(self) -> Iterator[list[bytes]]:
        """The same, as lists."""
        values = self.values()
        while chunk := list(islice(values, CHUNK)):
            yield chunk

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Take the time and the processor time of the block, of all threads."""
        started, used = time.perf_counter(), time.process_time()
        yield
        used, seconds = time.process_time() - used, time.perf_counter() - started
        self._result = {
            "records_s": self.count / seconds,
            "cpu_s": used / self.count * 1e6,
            "memory_mb": _peak_memory_mb(),
        }

    def skip(self, count: int) -> None:
        """Leave records out that came before the measurement."""
        self.count -= count

    def check_volume(self, volume: int) -> None:
        """Raise unless ``volume`` is that of all records of the load's form."""
        whole = forms.volume(self.form, self.count, self.size)
        if volume != whole:
            raise RuntimeError(f"{volume} bytes and headers were read, not {whole}")

    def check(self, seen: int, volume: int) -> None:
        """Raise unless ``seen`` records with ``volume`` bytes of values are all that there are."""
        if (seen, volume) != (self.count, self.count * self.size):
            raise RuntimeError(f"{seen} records, {volume} bytes: not {self.count} of {self.size}")

    def send_paced(self, send: Callable[[str, bytes], object], flush: Callable[[], object]) -> None:
        """Send ``rate`` records a second, then flush."""
        with self.measured():
            for wait, value in self._dues():
                time.sleep(wait)
                send(self.topic, value)
            flush()

    async def send_paced_async(
        self,
        send: Callable[[str, bytes], Awaitable[object]],
        flush: Callable[[], Awaitable[object]],
    ) -> None:
        """The same for asyncio."""
        with self.measured(), _Alarm() as alarm:
            for wait, value in self._dues():
                if wait:
                    await alarm.sleep(wait)
                await send(self.topic, value)
            await flush()

    def wait_for_each(self, send: Callable[[str, bytes], object]) -> None:
        """Send one record after another, each when the one before is acknowledged."""
        for value in self.values():
            began = time.perf_counter()
            send(self.topic, value)
            self._delays.append(time.perf_counter() - began)

    async def await_each(self, send: Callable[[str, bytes], Awaitable[object]]) -> None:
        """The same for asyncio."""
        for value in self.values():
            began = time.perf_counter()
            await send(self.topic, value)
            self._delays.append(time.perf_counter() - began)

    def wait_by_many(self, send: Callable[[str, bytes], object]) -> None:
        """Send with :data:`CALLERS` threads, each of which waits for its record."""
        shared = iter(self.values())
        turn = threading.Lock()

        def send_some() -> None:
            while True:
                with turn:
                    value = next(shared, None)
                if value is None:
                    return
                began = time.perf_counter()
                send(self.topic, value)
                self._delays.append(time.perf_counter() - began)

        threads = [threading.Thread(target=send_some) for _ in range(CALLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async def await_by_many(self, send: Callable[[str, bytes], Awaitable[object]]) -> None:
        """The same with tasks."""
        shared = iter(self.values())

        async def send_some() -> None:
            for value in shared:
                began = time.perf_counter()
                await send(self.topic, value)
                self._delays.append(time.perf_counter() - began)

        await asyncio.gather(*(send_some() for _ in range(CALLERS)))

    def _dues(self) -> Iterator[tuple[float, bytes]]:
        """How long to wait for each record's turn, and the value that tells when it was due.

        The clock is the machine's, the same for every process (Linux: ``CLOCK_MONOTONIC``).
        """
        start = time.perf_counter() + 0.01
        padding = b" " * (self.size - _STAMP)
        for index in range(self.count):
            due = start + index / self.rate
            value = f"{due:<{_STAMP}.9f}".encode()[:_STAMP] + padding
            yield max(0.0, due - time.perf_counter()), value

    def ready(self) -> None:
        """Let the sender begin: whatever it sends from now on is read."""
        sys.stdout.buffer.write(_READY)
        sys.stdout.buffer.flush()

    def arrived(self, value: bytes) -> bool:
        """Note how long a record that was sent at a rate took; whether more of them are to come."""
        self._delays.append(time.perf_counter() - float(value[:_STAMP]))
        return len(self._delays) < self.count

    def result(self) -> dict[str, float]:
        """What was measured; raises when that is nothing, or not all records came."""
        if self._delays:
            if len(self._delays) != self.count:
                raise RuntimeError(f"{len(self._delays)} of {self.count} records came")
            steady = sorted(self._delays[self.count // 5 :])  # the first fifth warms up
            return {f"p{p}_ms": steady[len(steady) * p // 100] * 1000 for p in (50, 99)}
        if not self._result:
            raise RuntimeError("nothing was measured")
        return self._result


class _Alarm:
    """Wakes the running event loop on time (Linux: ``timerfd_create(2)``).

    asyncio's own timers are late by up to 1 ms, unlike what has a program send: its sockets.
    """

    def __init__(self) -> None:
        self._system = ctypes.CDLL(None)
        self._file = self._system.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
        self._rang = asyncio.Event()

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._file, self._ring)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._file)
        os.close(self._file)

    def _ring(self) -> None:
        os.read(self._file, 8)
        self._rang.set()

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds, which are above 0."""
        self._rang.clear()
        whole, nanoseconds = divmod(max(int(seconds * 1e9), 1), 1_000_000_000)
        when = (ctypes.c_long * 4)(0, 0, whole, nanoseconds)
        self._system.timerfd_settime(self._file, 0, when, None)
        await self._rang.wait()


def arrow_batches(load: Load) -> Iterator[Any]:
    """As :meth:`Load.chunks`, as Arrow's record batches; again and again the same one."""
    import pyarrow as pa

    values = list(islice(cycle(_some_values(load.size)), CHUNK))
    batch = pa.record_batch({"value": pa.array(values, pa.binary())})
    starts = range(0, load.count, CHUNK)
    return (batch.slice(0, min(CHUNK, load.count - start)) for start in starts)


def arrow_volume(batch: Any) -> int:
    """The bytes of the values of a record batch."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.binary_length(batch.column("value"))).as_py())


def _some_values(size: int) -> list[bytes]:
    return [os.urandom(size // 2) + b"x" * (size - size // 2) for _ in range(1000)]


def _peak_memory_mb() -> float:
    # Not getrusage: its peak is inherited from the process that started this one.
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1000


def main() -> None:
    """Run the load that the arguments name."""
    name, options = sys.argv[1:]
    client, _, function = name.partition(".")
    if function.endswith("arrow"):
        import_module("pyarrow.compute")  # no part of what is measured
    load = Load(**json.loads(options))
    outcome = getattr(import_module(f"perf.peers.{client}_client"), function)(load)
    if inspect.isawaitable(outcome):
        asyncio.run(_finish(outcome))
    print(json.dumps(load.result()))


async def _finish(outcome: Any) -> None:
    await outcome


if __name__ == "__main__":
    main()
