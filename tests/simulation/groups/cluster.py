"""Brokers, groups and fault injection, from one seed."""

import asyncio
from itertools import count
from typing import NamedTuple

from qbus.errors import QbusError

from .broker import Broker
from .checks import Checks, ViolationError
from .loop import VirtualLoop, World
from .member import PARTITIONS, Member
from .store import Ensemble

BROKERS = (1, 2, 3)
GROUPS = ("a", "b")
STORM = 60.0
CALM = 40.0


class Faults(NamedTuple):
    """Which faults to inject: also of members, or only of brokers; and how often, in seconds."""

    members: bool = True
    every: float = 3.0


ANYTHING = Faults()
ONLY_BROKERS = Faults(members=False, every=6.0)


def simulate(seed: int, faults: Faults = ANYTHING) -> Checks:
    """Inject faults for a while, then heal; raises ViolationError."""
    loop = VirtualLoop()
    try:
        simulation = Simulation(World(seed, loop), faults)
        return loop.run_until_complete(simulation.run())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


class Simulation:
    """A cluster of coordinators with two groups of two or three members."""

    def __init__(self, world: World, faults: Faults) -> None:
        self.world = world
        self.faults = faults
        self.checks = Checks()
        self.ensemble = Ensemble(world, self.checks)
        self.brokers: dict[int, Broker] = {}
        self.members: dict[Member, asyncio.Task[None]] = {}
        self.tools: list[asyncio.Task[None]] = []
        self._numbers = count()
        self._failure: BaseException | None = None

    async def run(self) -> Checks:
        """Run a phase of faults and a calm one."""
        world = self.world
        world.loop.set_exception_handler(self._on_error)
        world.is_calm = True
        for node_id in BROKERS:
            self.brokers[node_id] = Broker(world, self.ensemble, node_id)
        self.ensemble.on_live = self._notify
        self._notify()
        for group in GROUPS:
            for _ in range(world.random.randint(2, 3)):
                self._join(group)
            tool = self._member(group)
            self.tools.append(asyncio.ensure_future(tool.poll_offsets()))
        await self._pass(15.0)
        before = self._generations()
        world.is_calm = not self.faults.members
        end = world.loop.now + STORM
        while world.loop.now < end:
            await self._pass(world.random.uniform(0.2, 2 * self.faults.every))
            self._inject_fault()
        world.is_calm = True
        await self._pass(CALM)
        self._verify(before)
        self.ensemble.close()
        return self.checks

    async def _pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._failure is not None:
            raise self._failure
        for task in [*self.members.values(), *self.tools]:
            if task.done():
                task.result()

    def _on_error(self, _: object, context: dict[str, object]) -> None:
        """Record errors other than those of a dead broker's requests, which no one awaits."""
        error = context.get("exception")
        if isinstance(error, BaseException) and not isinstance(error, QbusError):
            self._failure = self._failure or error

    def _notify(self) -> None:
        for broker in self.brokers.values():
            broker.hear()

    def _join(self, group: str) -> None:
        member = self._member(group)
        self.members[member] = asyncio.ensure_future(member.run())

    def _member(self, group: str) -> Member:
        number = next(self._numbers)
        return Member(self.world, self.ensemble, self.brokers, self.checks, group, number)

    # Faults

    def _inject_fault(self) -> None:
        random = self.world.random
        broker = self.brokers[random.choice(BROKERS)]
        others = sum(other.is_free for other in self.brokers.values() if other is not broker)
        if self.faults.members and random.random() < 0.2:
            self._replace_member()
        elif broker.is_free and others:
            if not self.faults.members:
                broker.crash(random.choice([0.1, 1.0, 6.0, 10.0]))
                return
            what = random.choice([broker.crash, broker.pause, broker.pause, broker.cut])
            what(random.choice([0.1, 1.0, 3.0, 6.0, 10.0]))

    def _replace_member(self) -> None:
        """Kill a member without a leave, and add another."""
        gone = self.world.random.choice(list(self.members))
        self.members.pop(gone).cancel()
        self._join(gone.group)

    # The end

    def _generations(self) -> dict[str, set[int]]:
        return {
            group: {member.generation for member in self.members if member.group == group}
            for group in GROUPS
        }

    def _verify(self, before: dict[str, set[int]]) -> None:
        """Check that all members work in one generation and own all partitions."""
        for group, generations in self._generations().items():
            members = [member for member in self.members if member.group == group]
            owned = sorted(partition for member in members for partition in member.positions)
            if len(generations) != 1 or not all(member.is_working for member in members):
                raise ViolationError(f"{group} is not settled: {generations}")
            if owned != list(PARTITIONS):
                raise ViolationError(f"{group}: partitions {owned} are consumed")
            if not self.faults.members and generations != before[group]:
                raise ViolationError(f"{group}: {before[group]} became {generations}")
