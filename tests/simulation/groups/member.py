"""A group member: it finds its coordinator, joins, works, commits, and rejoins."""

import asyncio
from asyncio import Future
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from qbus.broker.group import GroupCoordinator, Heartbeat, Join, JoinResult, Offset, Sync
from qbus.broker.group.requests import GroupProtocol
from qbus.errors import ApiError, ErrorCode

from .broker import Broker
from .checks import Checks
from .loop import Process, World
from .store import Ensemble

PARTITIONS = range(4)
SESSION_MS = 10_000
_TIMEOUT = 3.0
_FORGETS = 0.1  # chance that a tool looks up the coordinator again
_ELSEWHERE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}

T = TypeVar("T")


class _UnknownMemberError(Exception):
    """The group no longer knows the member."""


class _RejoinError(Exception):
    """A new generation has begun or is about to."""


class Member:
    """A member like a Kafka client; it commits one at a time and waits for each."""

    def __init__(
        self,
        world: World,
        ensemble: Ensemble,
        brokers: Mapping[int, Broker],
        checks: Checks,
        group: str,
        number: int,
    ) -> None:
        self._world = world
        self._ensemble = ensemble
        self._brokers = brokers
        self._checks = checks
        self.group = group
        self._number = number
        self._names = 0
        self._id = ""
        self._coordinator: Broker | None = None
        self.generation = -1
        self.positions: dict[int, int] = {}
        self.is_working = False

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self.is_working = False
            try:
                joined = await self._join()
                await self._sync(joined)
                await self._fetch()
                await self._work()
            except _UnknownMemberError:
                self._id = ""
            except _RejoinError:
                pass

    # What a member does

    async def _join(self) -> JoinResult:
        self._names += 1
        name = f"{self.group}-{self._number}-{self._names}"
        while True:
            request = Join(
                self._id, name, None, "", "", SESSION_MS, 5_000, "consumer",
                (GroupProtocol("range", b""),),
            )  # fmt: skip
            told: JoinResult = await self._ask(self._asking("join", request), timeout=12.0)
            if told.error is ErrorCode.MEMBER_ID_REQUIRED:
                self._id = told.member_id
            elif self._is_good(told.error):
                self._id, self.generation = told.member_id, told.generation
                self._checks.joined(self.group, told)
                return told

    async def _sync(self, joined: JoinResult) -> None:
        names = [member.member_id for member in joined.members]
        shares = {name: bytes(PARTITIONS[at :: len(names)]) for at, name in enumerate(names)}
        while True:
            request = Sync(self._id, None, self.generation, "consumer", "range", shares)
            told = await self._ask(self._asking("sync", request), timeout=8.0)
            if self._is_good(told.error):
                self.positions = dict.fromkeys(told.assignment, 0)
                self._checks.assigned(self.group, self.generation, self._id, list(told.assignment))
                return

    async def poll_offsets(self) -> None:
        """Fetch offsets at intervals, like a tool that is not a member."""
        while True:
            await asyncio.sleep(self._world.random.uniform(0.1, 1.0))
            self.positions = dict.fromkeys(PARTITIONS, 0)
            await self._fetch()
            if self._world.random.random() < _FORGETS:
                self._coordinator = None

    async def _fetch(self) -> None:
        known = dict(self._checks.acknowledged)
        offsets: dict[int, Offset] = await self._ask(self._read_offsets)
        for partition in self.positions:
            position = offsets[partition].offset if partition in offsets else 0
            self._checks.fetched(
                self.group, partition, position, known.get((self.group, partition), 0)
            )
            self.positions[partition] = position

    def _asking(self, what: str, request: Join | Sync) -> Callable[[GroupCoordinator], Any]:
        return lambda groups: getattr(groups, what)(self.group, request)

    async def _read_offsets(self, groups: GroupCoordinator) -> dict[int, Offset]:
        return dict((await groups.offsets(self.group)).get("t", {}))

    async def _work(self) -> None:
        self.is_working = True
        while True:
            await asyncio.sleep(self._world.random.uniform(0.1, 0.8))
            if self._world.random.random() < 0.5:
                self._is_good(await self._ask(self._heartbeat))
            elif self.positions:
                await self._commit()
                if self._world.random.random() < 0.1:
                    await self._fetch()

    async def _heartbeat(self, groups: GroupCoordinator) -> ErrorCode:
        return await groups.heartbeat(self.group, Heartbeat(self._id, None, self.generation))

    async def _commit(self) -> None:
        for partition in self.positions:
            self.positions[partition] += self._world.random.randint(1, 3)
        positions = dict(self.positions)
        generation, member_id = self.generation, self._id

        async def commit(groups: GroupCoordinator) -> dict[int, int]:
            offsets = {("t", partition): Offset(at) for partition, at in positions.items()}
            await groups.commit(self.group, offsets, member_id=member_id, generation=generation)
            path = f"/consumers/{self.group}/offsets/t"
            return {
                partition: int(self._ensemble.now[f"{path}/{partition}"].data)
                for partition in positions
            }

        stored = await self._ask(commit)
        for partition, offset in positions.items():
            self._checks.committed(self.group, partition, offset, stored[partition])

    def _is_good(self, error: ErrorCode) -> bool:
        """Whether this answer is final; otherwise ask again."""
        if error in _ELSEWHERE:
            self._coordinator = None
            return False
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            raise _RejoinError
        if error:
            raise _UnknownMemberError
        return True

    # How it asks

    async def _ask(
        self,
        ask: Callable[[GroupCoordinator], Coroutine[Any, Any, T]],
        timeout: float = _TIMEOUT,
    ) -> T:
        """Ask until the right coordinator answers."""
        while True:
            if self._coordinator is None:
                await asyncio.sleep(self._world.random.uniform(0.05, 0.3))
                self._coordinator = await self._find()
                continue
            try:
                answer = await self._call(self._coordinator, ask, timeout)
            except TimeoutError:
                self._coordinator = None
                continue
            if isinstance(answer, ApiError):
                self._is_good(answer.code)
                continue
            return answer

    async def _find(self) -> Broker | None:
        async def find(groups: GroupCoordinator) -> int | None:
            found = groups.coordinator(self.group)
            return None if found is None else found.id

        broker = self._brokers[self._world.random.choice(sorted(self._brokers))]
        try:
            found = await self._call(broker, find, _TIMEOUT)
        except TimeoutError:
            return None
        return self._brokers[found] if isinstance(found, int) else None

    async def _call(
        self,
        broker: Broker,
        ask: Callable[[GroupCoordinator], Coroutine[Any, Any, T]],
        timeout: float,
    ) -> T | ApiError:
        """Send one request on a connection that is closed after ``timeout``."""
        answered: Future[T | ApiError] = self._world.loop.create_future()

        def arrived(groups: GroupCoordinator, process: Process) -> None:
            if not answered.done():
                process.spawn(answer(groups))

        async def answer(groups: GroupCoordinator) -> None:
            try:
                result: T | ApiError = await ask(groups)
            except ApiError as error:
                result = error
            if not self._world.is_lost():
                self._world.later(self._world.delay(), lambda: _resolve(answered, result))

        def refused() -> None:
            if not broker.process.is_up and not answered.done():
                answered.set_exception(TimeoutError("connection refused"))

        if not self._world.is_lost():
            delay = self._world.delay()
            self._world.later(delay, lambda: broker.receive(arrived))
            self._world.later(delay, refused)
        async with asyncio.timeout(timeout):
            return await answered


def _resolve(future: Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)
