"""Logs of every kind in files that can be damaged, and what anyone can see of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qbus.broker.compaction.cleaning import Buffers, clean
from qbus.broker.compaction.plan import find_dirt
from qbus.broker.log import Log, LogConfig, LogManager
from qbus.broker.log.producers import ProducerState
from qbus.broker.partition_fold import PartitionFold
from qbus.clock import ManualClock
from qbus.records import build_batch, iter_batches, iter_records, read_header
from qbus.records.control import (
    Announcement,
    Change,
    ChangeKind,
    ControlType,
    Entries,
    History,
    Marker,
    Shared,
    control_batch,
    encode_announcement,
    encode_shared,
)
from qbus.records.header import hide_delayed

from .simulated_files import Directory, EverythingKept, Inode, SimulatedFiles

ROOT = "/data"
TOPIC_ID = bytes(range(16))
MARKER = ".kafka_cleanshutdown"
PRODUCER = 7
_NOW_MS = 1_700_000_000_000
_TRANSACTIONAL = 0x10
_BUFFERS = Buffers(24 * 24, 0.9, 400)
_CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=200, file_delete_delay_ms=60_000)


class Writer:
    """Appends to one partition; no two partitions get the same."""

    def __init__(self, manager: LogManager, index: int, clock: ManualClock) -> None:
        self.manager = manager
        self.clock = clock
        self.index = index
        log = manager.get("t", index)
        assert log is not None
        self.log: Log = log
        self._number = 0
        self._sequences: dict[int, int] = {}

    @property
    def _epoch(self) -> int:
        return self._number // 9

    def put(self, producer_id: int = PRODUCER, *, attributes: int = 0, key: bytes = b"") -> int:
        """One batch of an idempotent producer; its first offset."""
        self.clock.advance(0.05)
        self._number += 1
        count = 1 + (self._number + self.index) % 3
        value = b"%d-%d " % (self.index, self._number) + b"." * (40 + 13 * self.index)
        sequence = self._sequences.get(producer_id, 0)
        now = self.clock.time_ms() - 70 * (self._number % 2)
        batch = build_batch(
            [(key or b"k%d" % self._number, value, (), now)] * count,
            attributes=attributes,
            producer_id=producer_id + self.index * 100,
            producer_epoch=0,
            base_sequence=sequence,
        )
        self._sequences[producer_id] = sequence + count
        asked = None
        if attributes:
            asked = self.log.begin_verification(
                producer_id + self.index * 100, 0, sequence, begins_with_zero=False
            )
        return self.log.append(batch, self._epoch, asked).first_offset

    def hide(self, batch: bytearray, *others: bytearray) -> None:
        """Batches that consumers are not sent, and what they announce."""
        for other in others:
            batch += other
        self.log.append_own(batch, self._epoch)

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        self.log.end_transaction(
            producer_id + self.index * 100, 0, Marker(is_commit, 0), self._epoch, is_new_epoch=False
        )


def _plain(writer: Writer, part: int) -> None:
    for _ in range(14 + part):
        writer.put()
    if part:
        writer.log.delete_records_before(5 + writer.index)


def _transactional(writer: Writer, part: int) -> None:
    for number in range(8):
        writer.put(20, attributes=_TRANSACTIONAL)
        writer.put(21, attributes=_TRANSACTIONAL)
        writer.end(20, is_commit=number % 3 == part)
        writer.put()
        writer.end(21, is_commit=number % 3 != part)
    writer.put(22 + part, attributes=_TRANSACTIONAL)  # open at the end


def _delayed(writer: Writer, part: int) -> None:
    for number in range(9 + part):
        now = writer.clock.time_ms()
        due = now + 60_000 + number
        items = [(b"k", b"%d.%d " % (writer.index, number) + b"d" * 50, (), due)]
        batch = build_batch(items * (1 + writer.index))
        hide_delayed(batch, now)
        offset = writer.log.log_end_offset
        writer.hide(batch)
        if number % 3 != 1:
            writer.put()
        if number % 2:
            given = build_batch([(b"k", b"delivered %d" % number, (), now)])
            header = read_header(given)
            entries = Entries((due,), (offset,))
            announcement = Announcement(header.crc, header.records_count, entries)
            record = ControlType.DELIVERED, encode_announcement(announcement)
            writer.hide(control_batch([record], now), given)


def _queue(writer: Writer, part: int) -> None:
    kinds = (ChangeKind.ACKNOWLEDGED, ChangeKind.ARCHIVED, ChangeKind.RETURNED)
    if not part:
        _share(writer, Change(ChangeKind.STARTED, 0, 0))
    for number in range(10):
        first = writer.put()
        if number % 2 or writer.index:
            kind = kinds[number % 3]
            history = History(1 + number) if kind is ChangeKind.RETURNED else History(0)
            _share(writer, Change(kind, first, first, history))


def _share(writer: Writer, change: Change) -> None:
    record = ControlType.SHARED, encode_shared(Shared(f"g{writer.index}", [change]))
    writer.hide(control_batch([record], writer.clock.time_ms()))


def _compacted(writer: Writer, part: int) -> None:
    for number in range(16):
        writer.put(key=b"key %d" % (number % (4 + writer.index + part)))
    writer.log.flush()
    writer.manager.checkpoint()
    dirt = find_dirt(
        writer.log.rewriter.segments,
        writer.log.config,
        cleaned_before=writer.manager.cleaned_before("t", writer.index),
        limit=writer.log.log_end_offset,
        now_ms=writer.clock.time_ms(),
    )
    result = clean(
        writer.log, dirt, buffers=_BUFFERS, now_ms=writer.clock.time_ms(), pace=lambda _: None
    )
    writer.manager.checkpoint_cleaned("t", writer.index, result.end_offset)


Fill = Callable[[Writer, int], None]

KINDS: dict[str, tuple[Fill, dict[str, Any]]] = {
    "plain": (_plain, {}),
    "transactional": (_transactional, {}),
    "delayed": (_delayed, {"qbus_delay_enable": True}),
    "queue": (_queue, {}),
    "compacted": (_compacted, {"compacts": True, "retention_ms": -1}),
}


@dataclass(frozen=True)
class Made:
    """Two partitions as they were early, after a crash, and after a clean shutdown."""

    config: LogConfig
    now_ms: int
    early: SimulatedFiles
    crashed: SimulatedFiles
    closed: SimulatedFiles

    def files(self, stop: str) -> SimulatedFiles:
        """A copy of what a stop left behind, to be damaged."""
        return copy_of(self.closed if stop == "clean" else self.crashed)


def make(kind: str) -> Made:
    """Fill the partitions of a topic of a kind."""
    fill, changes = KINDS[kind]
    config = replace(_CONFIG, **changes)
    files, clock = SimulatedFiles(), ManualClock(_NOW_MS)
    manager = open_manager(files, config, clock)
    for index in range(2):
        manager.create("t", index, TOPIC_ID, config, is_new=True)
    writers = [Writer(manager, index, clock) for index in range(2)]
    copies = []
    for part in range(2):
        for writer in writers:
            fill(writer, part)
            writer.log.flush()
        manager.checkpoint()
        copies.append(copy_of(files))
    for writer in writers:
        writer.put()
        writer.log.flush()
    crashed = copy_of(files)
    manager.close()
    return Made(config, clock.time_ms(), copies[0], crashed, copy_of(files))


def open_manager(files: SimulatedFiles, config: LogConfig, clock: ManualClock) -> LogManager:
    return LogManager.open(
        [ROOT],
        lambda _: config,
        clock,
        files,
        node_id=1,
        cluster_id="cluster",
        threads=1,
        make_fold=PartitionFold,
    )


def copy_of(files: SimulatedFiles) -> SimulatedFiles:
    return files.after_crash(EverythingKept())


def inode(files: SimulatedFiles, path: str) -> Inode:
    directory, _, name = path.rpartition("/")
    found = files._directory(directory)
    assert isinstance(found, Directory)
    node = found.names[name]
    assert isinstance(node, Inode)
    return node


def derived_files(files: SimulatedFiles) -> list[str]:
    """The paths of all files that are not batches, those of the second partition apart."""
    of_partition = [f"{ROOT}/t-0/{name}" for name in files.list(f"{ROOT}/t-0")]
    of_directory = [
        f"{ROOT}/{name}" for name in files.list(ROOT) if not files.is_directory(f"{ROOT}/{name}")
    ]
    return sorted(
        path
        for path in of_partition + of_directory
        if not path.endswith((".log", ".deleted", ".lock"))
    )


# Damage, each to one file; False: there is nothing that it would change.


def deleted(made: Made, files: SimulatedFiles, path: str, dice: random.Random) -> bool:
    files.remove(path)
    return True


def emptied(made: Made, files: SimulatedFiles, path: str, dice: random.Random) -> bool:
    return _change(files, path, b"")


def halved(made: Made, files: SimulatedFiles, path: str, dice: random.Random) -> bool:
    data = inode(files, path).data
    return _change(files, path, data[: len(data) // 2])


def cut_by_a_byte(made: Made, files: SimulatedFiles, path: str, dice: random.Random) -> bool:
    return _change(files, path, inode(files, path).data[:-1])


def lengthened(made: Made, files: SimulatedFiles, path: str, dice: random.Random) -> bool:
    return _change(files, path, inode(files, path).data + b"\0")


def flipped(made: Made, files: SimulatedFiles, path: str, dice: random.Random) -> bool:
    data = bytearray(inode(files, path).data)
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return _change(files, path, bytes(data))


def of_another(made: Made, files: SimulatedFiles, path: str, dice: random.Random) -> bool:
    """The file of the same kind, and of the same age, of the other partition."""
    directory, _, name = path.rpartition("/")
    suffix = name[name.rindex(".") :] if "." in name else name
    others = [one for one in files.list(f"{ROOT}/t-1") if one.endswith(suffix)]
    if directory == ROOT or not others:
        return False
    mine = sorted(one for one in files.list(directory) if one.endswith(suffix))
    at = min(mine.index(name), len(others) - 1)
    return _change(files, path, inode(files, f"{ROOT}/t-1/{sorted(others)[at]}").data)


def outdated(made: Made, files: SimulatedFiles, path: str, dice: random.Random) -> bool:
    """As it was early, or the newest of its kind then."""
    directory, _, name = path.rpartition("/")
    if not made.early.exists(path):
        return False
    return _change(files, path, inode(made.early, f"{directory}/{name}").data)


def _change(files: SimulatedFiles, path: str, data: bytes) -> bool:
    node = inode(files, path)
    if node.data == data:
        return False
    node.change(data)
    node.sync()
    return True


DAMAGES = (deleted, emptied, halved, cut_by_a_byte, lengthened, flipped, of_another, outdated)


# What there is to see


def observe(made: Made, files: SimulatedFiles) -> dict[str, Any]:
    """Open the partitions, and look at the first one in every way."""
    manager = open_manager(files, made.config, ManualClock(made.now_ms))
    log = manager.get("t", 0)
    assert log is not None
    end = log.log_end_offset
    seen: dict[str, Any] = {
        "offsets": (log.log_start_offset, end, log.visible_end(end)),
        "sent": _sent(log),
        "all": _all(log),
        "aborted": log.aborted_between(0, end),
        "hidden": log.hidden_between(log.log_start_offset, end),
        "fold": b"".join(bytes(part) for part in log.fold.encode()),
        "epochs": log.epoch_cache.entries,
        "topic": log.topic_id,
        "unstable": _unstable(log),
        "times": [log.offset_for_timestamp(ms) for ms in range(_NOW_MS, made.now_ms + 300, 97)],
        "latest": log.offset_of_max_timestamp(),
        "producers": _producers(log.producers),
        "corruptions": len(log.corruptions),
    }
    manager.close()
    return seen


def _unstable(log: Log) -> int:
    log.advance_stable(log.log_end_offset)
    return log.first_unstable(log.log_end_offset)


def _producers(producers: ProducerState) -> Sequence[object]:
    return sorted(
        (
            one.producer_id,
            one.epoch,
            [(batch.last_offset, batch.last_sequence) for batch in one.batches[-1:]],
        )
        for one in producers
    )


def _sent(log: Log) -> list[tuple[int, int, bytes]]:
    """What consumers are sent: the offsets of each batch, and its records."""
    found: list[tuple[int, int, bytes]] = []
    offset, end = log.log_start_offset, log.log_end_offset
    while True:
        records = log.read_visible(offset, 700, log.visible_end(end), wait=True)
        if records is None:
            return found
        if records.needs_verification:
            records.warm()
        for header, batch in iter_batches(records.read()):
            values = b"".join(record.value or b"" for record in iter_records(batch))
            found.append((header.base_offset, header.last_offset, values))
            offset = header.last_offset + 1
        records.close()


def _all(log: Log) -> list[tuple[int, int, int]]:
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, 1, wait=True)
        assert records is not None
        if records.needs_verification:
            records.verify()
        for header, _ in iter_batches(records.read()):
            found.append((header.base_offset, header.last_offset, header.crc))
        offset = records.next_offset
        records.close()
    return found
