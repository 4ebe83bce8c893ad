"""Three IDCs far apart, and all that goes wrong between them: in the end each has everything.

Links take 100 ms there and back, and one frame in a hundred stalls. Mirrors are killed, links are
cut, a source's leader and a target's broker die. Then every mirror has its source's batches: the
same bytes at the same offsets, nothing lost, nothing twice, and no topic has come back home.
"""

import random
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest

from tests.support import zookeeper_process
from tests.support.far_proxy import Way, Ways
from tests.support.mirror_command import MirrorCommand
from tests.support.seeds import new_seed
from tests.support.waiting import wait_until

from .idcs import TOPIC, Idc, Writer, mirror, start_all
from .judging import judge, span, topics, wait_for_topics

MESH = {"a": ("b", "c"), "b": ("a", "c"), "c": ("a", "b")}
RING = {"a": ("c",), "b": ("a",), "c": ("b",)}
"""Of each IDC, those that it mirrors from."""

_DELAY, _STALLS, _STALL = 0.05, 0.01, 0.5


class World:
    """Three IDCs, ways between them, writers, and mirrors, of which any may fail."""

    def __init__(self, directory: Path, topology: Mapping[str, tuple[str, ...]], seed: int) -> None:
        self.random = random.Random(seed)
        self.topology = topology
        self.idcs = {
            name: Idc(name, directory, count) for name, count in (("a", 3), ("b", 1), ("c", 1))
        }
        self.ways: dict[tuple[str, str], Way] = {}
        self.mirrors: list[MirrorCommand] = []
        self.writers: dict[str, Writer] = {}
        self.network = Ways()
        self._directory = directory
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for idc in self.idcs.values():
                stack.callback(idc.kill)
            start_all(list(self.idcs.values()))
            stack.enter_context(self.network)
            for target, sources in self.topology.items():
                self._connect(target, sources, stack)
            for name, idc in self.idcs.items():
                self.writers[name] = stack.enter_context(Writer(idc, self.random.randrange(10**6)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _connect(self, target: str, sources: tuple[str, ...], stack: ExitStack) -> None:
        for source in sources:
            self.ways[source, target] = self.network.open(
                self.idcs[source].ports,
                delay=_DELAY,
                stalls=_STALLS,
                stall=_STALL,
                seed=self.random.randrange(10**6),
            )
        ways = {source: self.ways[source, target] for source in sources}
        made = mirror(self.idcs[target], ways, self._directory, len(self.mirrors))
        stack.callback(_kill, made)
        made.start()
        self.mirrors.append(made)

    def expected(self) -> list[list[str]]:
        """The topics that each IDC should have in the end."""
        return [
            [TOPIC, *(f"{other}.{TOPIC}" for other in self.idcs if other != name)]
            for name in self.idcs
        ]

    def wait_for_progress(self) -> None:
        """Return when every mirror has got further than now, so that all ways are in use."""
        before = {pair: self._reached(*pair) for pair in self._pairs()}

        def behind() -> list[tuple[str, str]]:
            return [pair for pair, reached in before.items() if self._reached(*pair) <= reached]

        wait_until(lambda: not behind(), "progress on every way", 120, 0.2)

    def _pairs(self) -> list[tuple[str, str]]:
        return [(one, other) for one in self.idcs for other in self.idcs if one != other]

    def _reached(self, source: str, target: str) -> int:
        spans = (span(self.idcs[target], f"{source}.{TOPIC}", index) for index in range(3))
        return sum(one.end for one in spans if one is not None)

    # What goes wrong.

    def kill_mirror(self) -> None:
        """One process, at a moment of its own; it is started again."""
        one = self.random.choice(self.mirrors)
        one.kill()
        one.start()

    def cut_way(self) -> None:
        """One, while others go on."""
        way = self.random.choice(list(self.ways.values()))
        self.network.cut(way)
        self.random.choice(self.mirrors).wait_ready()
        self.network.mend(way)

    def kill_leader(self) -> None:
        """The one of the source that has several brokers."""
        idc = self.idcs["a"]
        node = wait_until(lambda: max(idc.view.leader(TOPIC), 0), "a leader", 60)
        idc.brokers[node].kill()
        wait_until(lambda: idc.view.are_led([TOPIC], 3, without=node), "another leader", 60, 0.1)
        idc.brokers[node].start()

    def kill_target(self) -> None:
        """The only broker of an IDC."""
        broker = self.idcs[self.random.choice("bc")].brokers[1]
        broker.kill()
        broker.start()

    def judge(self) -> None:
        """Heal everything, and compare."""
        for writer in self.writers.values():
            writer.stop()
        wait_for_topics(self.idcs.values(), self.expected())
        for source, target in self._pairs():
            judge(self.idcs[source], self.idcs[target], self.writers[source].acknowledged)
        assert [topics(idc) for idc in self.idcs.values()] == [set(one) for one in self.expected()]


def _kill(process: MirrorCommand) -> None:
    if process.alive:
        process.kill()


@pytest.fixture
def seed() -> int:
    seed = new_seed()
    print(f"QBUS_SEED={seed}")
    return seed


@pytest.fixture(autouse=True)
def zookeeper() -> None:
    if reason := zookeeper_process.missing():
        pytest.skip(reason)


@pytest.mark.integration
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
@pytest.mark.parametrize("topology", [MESH, RING], ids=["mesh", "ring"])
def test_everything_again_and_again(
    tmp_path: Path, seed: int, topology: Mapping[str, tuple[str, ...]]
) -> None:
    with World(tmp_path, topology, seed) as world:
        world.wait_for_progress()
        for _ in range(12):
            harm = world.random.choice(
                (world.kill_mirror, world.cut_way, world.kill_leader, world.kill_target)
            )
            print(harm.__name__)
            harm()
            if world.random.random() < 0.4:
                world.wait_for_progress()
        world.wait_for_progress()
        world.judge()
