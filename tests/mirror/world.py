"""Three datacenters, the paths between them, writers, a group, and mirrors; any may fail."""

import random
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self

from qbus import Consumer, everywhere
from tests.support.far_proxy import Link, Links
from tests.support.mirror_command import MirrorCommand
from tests.support.waiting import wait_until

from .groups import Reader, committed
from .idcs import TOPIC, Idc, Writer, mirror
from .judging import judge, replicas_agree, span, topics, wait_for_topics

Topology = Mapping[str, tuple[str, ...]]
"""The sources of each datacenter."""

_DELAY, _STALLS, _STALL = 0.05, 0.01, 0.5
_MANY = 500  # records tell that time has passed


class World:
    """Everything, started on entry and ended on exit. Datacenter a has three brokers."""

    def __init__(self, directory: Path, topology: Topology, seed: int, processes: int = 1) -> None:
        """``processes`` mirror into each datacenter, and divide its links."""
        self.random = random.Random(seed)
        self.topology = topology
        self.idcs = {
            name: Idc(name, directory, count) for name, count in (("a", 3), ("b", 1), ("c", 1))
        }
        self.ways: dict[tuple[str, str], Link] = {}
        self.mirrors: list[MirrorCommand] = []
        self.writers: dict[str, Writer] = {}
        self.reader = Reader(self.idcs["a"])
        self.network = Links()
        self._processes = processes
        self._directory = directory
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for idc in self.idcs.values():
                stack.callback(idc.kill)
            with ThreadPoolExecutor() as pool:
                list(pool.map(Idc.start, self.idcs.values()))
            stack.enter_context(self.network)
            for target, sources in self.topology.items():
                self._connect(target, sources, stack)
            for name, idc in self.idcs.items():
                self.writers[name] = stack.enter_context(Writer(idc, self._number()))
            stack.enter_context(self.reader)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _connect(self, target: str, sources: tuple[str, ...], stack: ExitStack) -> None:
        ways = {
            source: self.network.open(
                self.idcs[source].ports,
                delay=_DELAY,
                stalls=_STALLS,
                stall=_STALL,
                seed=self._number(),
            )
            for source in sources
        }
        self.ways |= {(source, target): way for source, way in ways.items()}
        for _ in range(self._processes):
            made = mirror(self.idcs[target], ways, self._directory, len(self.mirrors))
            stack.callback(_end, made)
            made.start(wait=False)
            self.mirrors.append(made)

    def _number(self) -> int:
        return self.random.randrange(10**6)

    def _pairs(self) -> list[tuple[str, str]]:
        return [(one, other) for one in self.idcs for other in self.idcs if one != other]

    def _expected(self) -> list[list[str]]:
        """The topics that each datacenter should have in the end."""
        return [
            [TOPIC, *(f"{other}.{TOPIC}" for other in self.idcs if other != name)]
            for name in self.idcs
        ]

    # How it goes.

    def wait_for_progress(self) -> None:
        """Return when every mirror has progressed, so that all paths are in use."""
        before = {pair: self._reached(*pair) for pair in self._pairs()}

        def is_further() -> bool:
            self.check_groups()
            return all(self._reached(*pair) > reached for pair, reached in before.items())

        wait_until(is_further, "progress on every way", 120, 0.2)

    def wait_for_writers(self) -> None:
        """Return when many records have been written everywhere."""
        before = {name: writer.acknowledged for name, writer in self.writers.items()}
        wait_until(
            lambda: all(
                writer.acknowledged > before[name] + _MANY for name, writer in self.writers.items()
            ),
            "writers",
            120,
            0.05,
        )

    def check_groups(self) -> None:
        """Check that no group's offset is beyond the data."""
        for target in "bc":
            if self.idcs[target].brokers[1].serves():
                committed(self.idcs["a"], self.idcs[target])

    def _reached(self, source: str, target: str) -> int:
        spans = (span(self.idcs[target], f"{source}.{TOPIC}", index) for index in range(3))
        return sum(one.end for one in spans if one is not None)

    # What goes wrong.

    def kill_mirror(self) -> None:
        """Kill a mirror process at a random moment, and start it again."""
        process = self.random.choice(self.mirrors)
        process.kill()
        process.start()

    def cut_way(self) -> None:
        """Cut a path while many records are written."""
        way = self.random.choice(list(self.ways.values()))
        self.network.cut(way)
        self.wait_for_writers()
        self.network.heal(way)

    def cut_way_for_minutes(self, seconds: float = 180.0) -> None:
        """Cut a path for longer than any time-out; its source is written to meanwhile."""
        (source, target), way = self.random.choice(list(self.ways.items()))
        writer = self.writers[source]
        self.network.cut(way)
        mended_at = time.monotonic() + seconds
        time.sleep(5)  # the target may still be taking in what had come
        reached = self._reached(source, target)
        while time.monotonic() < mended_at:
            before = writer.acknowledged
            wait_until(partial(_has_written, writer, before), f"records written in {source}", 60)
            self.check_groups()
            time.sleep(5)
        assert self._reached(source, target) == reached, "nothing came by the way that was cut"
        self.network.heal(way)

    def silence_way(self, seconds: float = 75.0) -> None:
        """Silence a path for longer than any request waits."""
        way = self.random.choice(list(self.ways.values()))
        self.network.silence(way)
        time.sleep(seconds)
        self.network.heal(way)

    def kill_leader(self) -> None:
        """Kill a leader in the datacenter with several brokers; another one takes over."""
        idc = self.idcs["a"]
        node = wait_until(lambda: max(idc.view.leader(TOPIC), 0), "a leader", 60)
        idc.brokers[node].kill()
        wait_until(lambda: idc.view.are_led([TOPIC], 3, without=node), "another leader", 60, 0.1)
        idc.brokers[node].start()

    def kill_target(self) -> None:
        """Kill the only broker of a datacenter, and start it again."""
        broker = self.idcs[self.random.choice("bc")].brokers[1]
        broker.kill()
        broker.start()

    # How it ends.

    def judge(self) -> None:
        """Check that all mirrors equal their sources, and that there is nothing else."""
        for writer in self.writers.values():
            writer.stop()
        self.reader.stop()
        wait_for_topics(self.idcs.values(), self._expected())
        for source, target in self._pairs():
            judge(self.idcs[source], self.idcs[target], self.writers[source].acknowledged)
        for idc in self.idcs.values():
            self._read_everywhere(idc)
        names = [set(one) for one in self._expected()]
        assert [topics(idc) for idc in self.idcs.values()] == names
        replicas_agree(self.idcs["a"], names[0])
        wait_until(self._is_carried, "the group's offsets", 60, 0.5)

    def _read_everywhere(self, idc: Idc) -> None:
        """Check that one subscription gives the records of all datacenters."""
        expected = {
            TOPIC if name == idc.name else f"{name}.{TOPIC}": writer.acknowledged
            for name, writer in self.writers.items()
        }
        found: Counter[str] = Counter()
        with Consumer(idc.bootstrap, offset_reset="earliest") as consumer:
            consumer.subscribe(everywhere(TOPIC))

            def are_all_read() -> bool:
                for records in consumer.poll(0.5):
                    found[records.topic] += len(records)
                return found.total() >= sum(expected.values())

            wait_until(are_all_read, f"the records of all IDCs in {idc.name}", 120, 0)
        assert found == expected

    def _is_carried(self) -> bool:
        return all(committed(self.idcs["a"], self.idcs[target]) for target in "bc")


def _has_written(writer: Writer, before: int) -> bool:
    return writer.acknowledged > before


def _end(process: MirrorCommand) -> None:
    if process.alive:
        process.kill()
