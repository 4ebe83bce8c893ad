"""Queues on a real log that is closed, killed, rolled and shortened: what was done stays done."""

import random
from pathlib import Path

import pytest

from qbus.broker.queues import AckRange, AckType, ShareQueue
from qbus.broker.queues.fold import QueueFold
from tests.support.ranges import spans

from .queues import World, records

STEPS = 60


def summary(fold: QueueFold) -> object:
    return {
        name: (group.start, spans(group.done), spans(group.returned))
        for name, group in fold.groups.items()
    }


class Life:
    """A partition with two groups, and what their members did."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.world = World(directory)
        self.rng = random.Random(seed)
        self.accepted: dict[str, set[int]] = {"g": set(), "h": set()}
        self.held: dict[str, list[int]] = {"g": [], "h": []}
        self.added: set[int] = set()

    def queue(self, group: str) -> ShareQueue:
        return self.world.queue(group, partition_max_locks=30)

    async def step(self) -> None:
        group = self.rng.choice("gh")
        act = self.rng.choices(
            (self.add, self.take, self.acknowledge, self.roll, self.restart), (3, 4, 4, 1, 1)
        )[0]
        await act(group)

    async def add(self, _: str) -> None:
        count = self.rng.randint(1, 20)
        first = await self.world.add(*[b"x" * self.rng.randint(0, 50)] * count)
        self.added.update(range(first, first + count))

    async def take(self, group: str) -> None:
        queue = self.queue(group)
        if self.rng.random() < 0.5:
            taken = await records(queue, self.rng.randint(1, 9), "m")
            offsets = [record.offset for record in taken]
        else:
            batches = await queue.take_batches("m", max_records=9, max_bytes=1 << 20)
            offsets = [
                offset
                for part in batches.acquired
                for offset in range(part.first_offset, part.last_offset + 1)
            ]
        assert self.accepted[group].isdisjoint(offsets)
        assert self.added.issuperset(offsets)
        self.held[group] += offsets

    async def acknowledge(self, group: str) -> None:
        held = self.held[group]
        chosen = self.rng.sample(held, self.rng.randint(0, len(held)))
        ranges = []
        for offset in chosen:
            kind = AckType.ACCEPT if self.rng.random() < 0.7 else AckType.RELEASE
            ranges.append(AckRange(offset, offset, kind))
        await self.queue(group).acknowledge("m", ranges)
        self.accepted[group].update(ack.first for ack in ranges if ack.type == AckType.ACCEPT)
        self.held[group] = [offset for offset in held if offset not in chosen]

    async def roll(self, _: str) -> None:
        self.world.partition.log.roll()

    async def restart(self, _: str) -> None:
        """Start again, perhaps without the snapshots, or with those of long ago."""
        before = summary(self.world.fold)
        directory = Path(self.world.partition.log.directory)
        await self.world.plane.stop()
        self.remove_snapshots(directory)
        await self.world.plane.start()
        assert summary(self.world.fold) == before
        self.held = {"g": [], "h": []}

    def remove_snapshots(self, directory: Path) -> None:
        kept = self.rng.random()
        for snapshot in sorted(directory.glob("*.control")):
            if kept < 0.3 or (kept < 0.6 and self.rng.random() < 0.5):
                snapshot.unlink()

    async def finish(self) -> None:
        """Take and do all that is left."""
        await self.restart("g")
        for group in "gh":
            queue = self.queue(group)
            while taken := await records(queue, 30, "m"):
                assert self.accepted[group].isdisjoint(record.offset for record in taken)
                offsets = [record.offset for record in taken]
                await queue.acknowledge("m", [AckRange(at, at, AckType.ACCEPT) for at in offsets])
                self.accepted[group].update(offsets)
            dropped = queue.counts.dropped
            assert len(self.added - self.accepted[group]) >= dropped
            assert (queue.length, queue.in_flight) == (0, 0)
            await self.world.settled()
            assert not len(self.world.progress(group).done), "the start is behind all"


@pytest.mark.parametrize("seed", range(12))
async def test_what_was_done_stays_done(tmp_path: Path, seed: int) -> None:
    life = Life(tmp_path, seed)
    await life.world.start()
    for _ in range(STEPS):
        await life.step()
    await life.finish()
    await life.world.plane.stop()
