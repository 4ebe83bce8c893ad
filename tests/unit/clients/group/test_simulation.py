"""Members of a group through joins, leaves, deaths, idleness and lost answers, in virtual time.

Every partition has one owner at a time, no commit goes back, users are told in time, and in the
end everything is read. A failure names its seed.
"""

import asyncio
import os
import re

import pytest

from qbus.clients.group.state import Phase
from tests.unit.clients.group.world import World, run

SEED = int(os.environ.get("QBUS_SEED", "0"))
COOPERATIVE = ("cooperative-sticky",)
EAGER = ("range", "roundrobin")
STICKY = ("sticky", "range")
UPGRADING = ("cooperative-sticky", "range")
CREWS: dict[str, list[tuple[str, ...]]] = {
    "cooperative": [COOPERATIVE],
    "eager": [EAGER],
    "sticky": [STICKY],
    "mixed": [EAGER, STICKY, UPGRADING],
    "upgrading": [COOPERATIVE, UPGRADING],
}


async def storm(world: World, crew: list[tuple[str, ...]], rounds: int) -> None:
    chance = world.random
    instances = 0
    for _ in range(rounds):
        await asyncio.sleep(chance.uniform(0, 4))
        action = chance.choice(["join", "join", "leave", "die", "idle", "grow", "static"])
        alive = world.readers
        if action in {"join", "static"} and len(alive) < 6:
            instances += action == "static"
            topics = chance.choice([("t",), ("t", "u"), re.compile("[tu]")])
            instance = f"i{instances}" if action == "static" else None
            world.reader(topics, chance.choice(crew), instance)
        elif action == "leave" and len(alive) > 1:
            await alive.pop(chance.randrange(len(alive))).close()
        elif action == "die" and len(alive) > 1:
            await alive.pop(chance.randrange(len(alive))).die()
        elif action == "idle" and alive:
            chance.choice(alive).is_slow = True
        elif action == "grow":
            topic = chance.choice(sorted(world.topics))
            world.topics[topic] = min(9, world.topics[topic] + 1)


@pytest.mark.parametrize("crew", list(CREWS))
@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_one_owner_and_no_step_back(seed: int, crew: str) -> None:
    world = World(seed, {"t": 4, "u": 2}, loss=0.02 * (seed % 4))

    async def main() -> None:
        world.reader(("t", "u"), CREWS[crew][0])
        await storm(world, CREWS[crew], rounds=25)
        world.loss = 0.0
        world.reader(("t", "u"), CREWS[crew][-1])
        await world.until_stable()
        assert [r.failure for r in world.readers if r.failure] == []
        for reader in world.readers:
            read = {p: reader.assignment.position(p) or 0 for p in reader.owned}
            may_commit = reader.rebalance.state.phase is Phase.STABLE
            await reader.close()
            for partition, position in read.items():
                assert not may_commit or world.coordinator.committed.get(partition, 0) >= position

    run(main())
    assert world.wrong == []
    assert world.coordinator.wrong == []
    assert world.coordinator.generation > 4
    assert world.coordinator.refused["NONE"] > 20
