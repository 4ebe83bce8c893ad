"""Delayed records and mirrors: whole logs, with what they hide, and what became of every record."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Self

from qbus import Admin
from qbus.clients.batches import read_batches
from qbus.clients.net.cluster import Cluster
from qbus.clients.offsets import list_offsets
from qbus.clients.types import EARLIEST, LATEST, ConfigKind, TopicPartition
from qbus.records import iter_records, read_header
from qbus.records.control import ControlType, decode_carried, iter_control

from .broker_process import BrokerProcess
from .delayed_load import PARTITIONS
from .mirror_command import MirrorCommand
from .server_process import ServerProcess
from .waiting import wait_until

_EPOCH = slice(12, 16)

Batches = dict[int, bytes]
"""The batches of a partition without leader epochs, hidden ones included, by base offset."""


def batches_of(server: ServerProcess, topic: str, partition: int) -> Batches:
    """Every batch of a partition, up to its high watermark."""
    return asyncio.run(_batches(server.bootstrap, TopicPartition(topic, partition)))


async def _batches(bootstrap: str, where: TopicPartition) -> Batches:
    cluster = Cluster(bootstrap, "test", 30.0)
    try:
        start, end = [
            (await list_offsets(cluster, {where: which}, hidden=True))[where].offset
            for which in (EARLIEST, LATEST)
        ]
        found: Batches = {}
        if start < end:
            async for header, batch in read_batches(cluster, where, start, end, hidden=True):
                whole = bytearray(batch)
                whole[_EPOCH] = bytes(4)
                found[header.base_offset] = bytes(whole)
        return found
    finally:
        await cluster.close()


def log_ends(server: ServerProcess, topic: str, partitions: int) -> list[int]:
    """The ends of a topic's logs, behind what they hide; -1 for each while it does not exist."""

    async def ask() -> list[int]:
        cluster = Cluster(server.bootstrap, "test", 30.0)
        try:
            await cluster.refresh(None)
            if topic not in cluster.metadata.topics:
                return [-1] * partitions
            wanted = [TopicPartition(topic, index) for index in range(partitions)]
            found = await list_offsets(cluster, dict.fromkeys(wanted, LATEST), hidden=True)
            return [found[one].offset for one in wanted]
        finally:
            await cluster.close()

    return asyncio.run(ask())


def wait_until_copied(
    source: ServerProcess, topic: str, target: ServerProcess, copy: str, partitions: int
) -> None:
    """Return when the copy's logs end where those of the source do, which may still deliver."""
    wait_until(
        lambda: log_ends(source, topic, partitions) == log_ends(target, copy, partitions),
        f"{copy} at {target.bootstrap}",
        60,
        0.1,
    )


def is_hidden(batch: bytes) -> bool:
    """Whether consumers are not sent a batch."""
    return read_header(batch).is_hidden


class Told(NamedTuple):
    """What a log says of numbered records: stored in it to be delivered later, visible in it."""

    held: set[int]
    visible: Counter[int]


def told_by(batches: Mapping[int, bytes]) -> Told:
    """Which records a log has."""
    held: set[int] = set()
    visible: Counter[int] = Counter()
    for batch in batches.values():
        header = read_header(batch)
        if header.is_delayed:
            held.update(_numbers(batch))
        elif not header.is_hidden:
            visible.update(_numbers(batch))
        else:
            for record in iter_control(batch):
                if record.type is ControlType.CARRIED:
                    held.update(_numbers(decode_carried(record.value).batch))
    return Told(held, visible)


def _numbers(batch: bytes) -> Iterable[int]:
    return [int(record.value or b"") for record in iter_records(batch)]


def common_prefix(source: Mapping[int, bytes], copy: Mapping[int, bytes]) -> Batches:
    """The batches of a copy that its source has as well, up to the first that it has not."""
    found: Batches = {}
    for offset, batch in copy.items():
        if source.get(offset) != batch:
            break
        found[offset] = batch
    return found


_MIRROR = """
topics = [{topics}]
topics_at_target = {{ discovery_interval_ms = 500 }}
groups = {{ enabled = false }}
transfer = {{ session_timeout_ms = 1000, request_timeout_ms = 5000, partition_fetch_bytes = 65536 }}
target = {{ idc = "{target}", bootstrap = "{target_bootstrap}" }}
[[source]]
idc = "{source}"
bootstrap = "{source_bootstrap}"
"""


def mirror_file(
    directory: Path,
    source: tuple[str, ServerProcess],
    target: tuple[str, ServerProcess],
    *topics: str,
) -> Path:
    """The configuration of a mirror between two datacenters, with short times."""
    path = directory / f"{source[0]}-{target[0]}.toml"
    path.write_text(
        _MIRROR.format(
            topics=", ".join(f'"{one}"' for one in topics),
            source=source[0],
            source_bootstrap=source[1].bootstrap,
            target=target[0],
            target_bootstrap=target[1].bootstrap,
        )
    )
    return path


def assert_equal(source: ServerProcess, topic: str, target: ServerProcess, copy: str) -> None:
    """Fail unless the copy of a topic is the same, byte for byte."""
    for partition in range(PARTITIONS):
        ours = batches_of(source, topic, partition)
        theirs = batches_of(target, copy, partition)
        assert list(theirs) == list(ours), f"partition {partition} of {copy}: other offsets"
        assert theirs == ours, f"partition {partition} of {copy}: other bytes"
        assert any(map(is_hidden, ours.values()))


_OPTIONS = (
    *("-o", "group.min.session.timeout.ms=500"),
    *("-o", "group.initial.rebalance.delay.ms=0"),
    *("-o", "log.retention.check.interval.ms=300"),
)


class Way:
    """Datacenters in a row, the first of which is written to, and the mirrors between them."""

    def __init__(self, directory: Path, *names: str) -> None:
        self.brokers = {name: BrokerProcess(directory / name, *_OPTIONS) for name in names}
        self.mirrors: list[MirrorCommand] = []
        self._directory = directory
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for broker in self.brokers.values():
                stack.enter_context(broker)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def source(self) -> BrokerProcess:
        return next(iter(self.brokers.values()))

    @property
    def target(self) -> BrokerProcess:
        return list(self.brokers.values())[-1]

    def mirror(self, topic: str) -> None:
        """Start the mirrors of a topic."""
        names = list(self.brokers)
        for number, (here, there) in enumerate(pairwise(names)):
            file = mirror_file(
                self._directory,
                (here, self.brokers[here]),
                (there, self.brokers[there]),
                topic if number == 0 else f"{names[0]}.{topic}",
            )
            self.mirrors.append(self._stack.enter_context(MirrorCommand("--config", str(file))))

    def stop_mirrors(self) -> None:
        for mirror in self.mirrors:
            mirror.stop()


def end_mirror(server: ServerProcess, topic: str, **config: str) -> None:
    """Make a copy a topic of its own, and set ``config``."""
    with Admin(server.bootstrap) as admin:
        admin.alter_config(ConfigKind.TOPIC, topic, set=config, unset=["qbus.mirror.source"])


def wait_for_quiet(server: ServerProcess, topic: str, partitions: int = PARTITIONS) -> None:
    """Return when a topic holds nothing back any more."""
    wanted = [(topic, partition) for partition in range(partitions)]

    def is_done() -> bool:
        with Admin(server.bootstrap) as admin:
            return not any(one.pending for one in admin.describe_delayed(wanted).values())

    wait_until(is_done, f"that {topic} holds nothing back", 60, 0.2)
    time.sleep(1)  # for what should not come


def audit_of_end(source: ServerProcess, topic: str, target: ServerProcess, copy: str) -> None:
    """Fail unless what the copy had when its mirror ended came there once, by whomever.

    Some have to be delivered by the source, and some by the target.
    """
    by_source = by_target = 0
    for partition in range(PARTITIONS):
        original = batches_of(source, topic, partition)
        batches = batches_of(target, copy, partition)
        before = common_prefix(original, batches)
        copied, told = told_by(before), told_by(batches)
        twice = [number for number, times in told.visible.items() if times > 1]
        assert not twice, f"twice in {copy}-{partition}: {sorted(twice)[:10]}"
        lost = (copied.held | copied.visible.keys()) - told.visible.keys()
        assert not lost, f"lost of {copy}-{partition}: {sorted(lost)[:10]} of {len(lost)}"
        assert told.visible.keys() == copied.held | copied.visible.keys()
        by_source += len(copied.held & copied.visible.keys())
        by_target += len(copied.held - copied.visible.keys())
    assert by_source > 100
    assert by_target > 100
