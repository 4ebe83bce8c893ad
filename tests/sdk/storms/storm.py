"""A storm: members come and go, all at random and in every way, while records keep coming."""

import asyncio
import itertools
import json
import random
import sys
from typing import Any

from qbus.aio import Admin, Producer
from tests.support.fault_proxy import FaultProxy

from .chronicle import Chronicle
from .member import live

_MOST_MEMBERS = 5
_MOST_PROCESSES = 2


class Storm:
    """Members of ``group`` that read ``topic`` through ``proxy``, and an observer of their commits.

    They end by leaving, by being cancelled, or by SIGKILL; all suffer cut connections.
    """

    def __init__(
        self, proxy: FaultProxy, group: str, topic: str, seed: int, **options: Any
    ) -> None:
        self.chronicle = Chronicle()
        self.sent = 0
        self._proxy = proxy
        self._group = group
        self._topic = topic
        self._options = options
        self._chance = random.Random(seed)
        self._numbers = itertools.count(1)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._readers: set[asyncio.Task[None]] = set()

    async def rage(self, seconds: float) -> None:
        """Let members come and go for so long, then calm down until all is read."""
        async with asyncio.TaskGroup() as tasks:
            producing = tasks.create_task(self._produce())
            watching = tasks.create_task(self._watch())
            await self._toss(seconds)
            producing.cancel()
            await asyncio.gather(producing, return_exceptions=True)
            await self._calm()
            watching.cancel()
        self.chronicle.check_covered(await self._observe())

    async def _toss(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            moves = [self._join]
            if self._tasks:
                moves += [self._leave, self._cut]
            if len(self._processes) < _MOST_PROCESSES:
                moves.append(self._spawn)
            if self._processes:
                moves.append(self._kill)
            await self._chance.choice(moves)()
            await asyncio.sleep(self._chance.uniform(0.0, 0.6))

    async def _calm(self) -> None:
        """Let the processes die and some members live, until they have read everything."""
        while self._processes:
            await self._kill()
        if not self._tasks:
            await self._join()
        async with asyncio.timeout(60):
            while self.chronicle.count() < self.sent:
                self._check_alive()
                await asyncio.sleep(0.05)
        while self._tasks:
            await self._leave()
        await asyncio.gather(*self._readers)

    # What happens to members.

    async def _join(self) -> None:
        if len(self._tasks) + len(self._processes) >= _MOST_MEMBERS:
            return
        name = f"task {next(self._numbers)}"
        self._tasks[name] = asyncio.create_task(
            live(
                self._proxy.bootstrap,
                self._group,
                self._topic,
                self._options,
                lambda report: self.chronicle.note(name, report),
            )
        )

    async def _leave(self) -> None:
        """Cancel a member's task wherever it is, which makes it leave without another commit."""
        self._check_alive()
        task = self._tasks.pop(self._chance.choice(list(self._tasks)))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _cut(self) -> None:
        """Cut every connection, or the next one in the middle of a frame."""
        if self._chance.random() < 0.5:
            self._proxy.cut(reset=self._chance.random() < 0.5)
        else:
            self._proxy.to_client.cut_after(self._chance.randrange(2000))

    async def _spawn(self) -> None:
        name = f"process {next(self._numbers)}"
        arguments = (self._proxy.bootstrap, self._group, self._topic, json.dumps(self._options))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.sdk.storms.member", *arguments),
            stdout=asyncio.subprocess.PIPE,
        )
        self._processes[name] = process
        self._readers.add(asyncio.create_task(self._read(name, process)))

    async def _kill(self) -> None:
        process = self._processes.pop(self._chance.choice(list(self._processes)))
        process.kill()
        await process.wait()

    async def _read(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while (line := await process.stdout.readline()).endswith(b"\n"):
            self.chronicle.note(name, json.loads(line))

    def _check_alive(self) -> None:
        """Raise what ended a member that was to live."""
        for task in self._tasks.values():
            if task.done():
                task.result()

    # Records come, and commits are watched.

    async def _produce(self) -> None:
        async with Producer(self._proxy.bootstrap, linger_ms=1) as producer:
            while True:
                for _ in range(10):
                    await producer.send(self._topic, b"%d" % self.sent)
                    self.sent += 1
                await asyncio.sleep(0.02)

    async def _watch(self) -> None:
        while True:
            await self._observe()
            await asyncio.sleep(0.02)

    async def _observe(self) -> dict[int, int]:
        floor = dict(self.chronicle.commits)
        async with Admin(self._proxy.bootstrap) as admin:
            committed = {
                offset.partition: offset.committed_offset
                for offset in await admin.group_offsets(self._group)
            }
        self.chronicle.check_committed(floor, committed)
        return committed
