"""Three distant datacenters with failures between them: in the end each has everything.

Round trips take 100 ms, and one frame in a hundred stalls. Mirrors are killed, links are cut or
fall silent, a source's leader and a target's broker die. Then every mirror has its source's
batches: the same bytes at the same offsets, nothing lost, nothing twice; no topic has returned to
its origin, and no group's offset was ever beyond the data.
"""

from pathlib import Path

import pytest

from tests.support import zookeeper_process
from tests.support.seeds import new_seed
from tests.support.tools import skip_because_of

from .world import Topology, World

MESH = {"a": ("b", "c"), "b": ("a", "c"), "c": ("a", "b")}
RING = {"a": ("c",), "b": ("a",), "c": ("b",)}

ROUNDS = 25


@pytest.fixture
def seed() -> int:
    skip_because_of(zookeeper_process.missing())
    seed = new_seed()
    print(f"QBUS_SEED={seed}")
    return seed


@pytest.mark.integration
@pytest.mark.timeout(420)
def test_a_ring_with_a_little_of_everything(tmp_path: Path, seed: int) -> None:
    with World(tmp_path, RING, seed) as world:
        world.wait_for_progress()
        world.kill_mirror()
        world.kill_leader()
        world.cut_way()
        world.kill_target()
        world.wait_for_progress()
        world.judge()


@pytest.mark.nightly
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("topology", [MESH, RING], ids=["mesh", "ring"])
def test_all_faults_in_random_order(tmp_path: Path, seed: int, topology: Topology) -> None:
    with World(tmp_path, topology, seed, processes=2) as world:
        world.wait_for_progress()
        for _ in range(ROUNDS):
            harm = world.random.choice(
                (
                    world.kill_mirror,
                    world.kill_mirror,
                    world.cut_way,
                    world.kill_leader,
                    world.kill_target,
                )
            )
            print(harm.__name__)
            harm()
            if world.random.random() < 0.4:
                world.wait_for_progress()
        world.silence_way()
        world.wait_for_progress()
        world.cut_way_for_minutes()
        world.wait_for_progress()
        world.judge()
