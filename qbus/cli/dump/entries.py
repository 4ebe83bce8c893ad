"""The entries of a log's files as documents."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from qbus.broker.delay import DelayFold
from qbus.broker.log import inspect
from qbus.broker.log.checkpoints import (
    CLEANER_OFFSETS,
    LEADER_EPOCHS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from qbus.broker.log.manifest import MANIFEST
from qbus.broker.partition_fold import PartitionFold
from qbus.broker.queues.fold import QueueFold
from qbus.cli.consume.record_format import record_fields
from qbus.cli.documents import topic_id
from qbus.cli.dump.controls import control_fields
from qbus.cli.failures import Failure
from qbus.records import BatchHeader, CorruptBatch, iter_records
from qbus.records.compact import horizon_of
from qbus.records.control import read_marker

Entry = dict[str, Any]


def expand(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield each file, and instead of a directory the files in it that can be shown.

    A directory with directories of partitions stands for their files, too. Raises Failure for a
    directory without such files.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        found = [*_files(path), *(file for part in _partitions(path) for file in _files(part))]
        if not found:
            raise Failure(f"{path}: this directory has no files of a log")
        yield from found


def _files(directory: Path) -> list[Path]:
    return sorted(child for child in directory.iterdir() if _reader(child) and child.is_file())


def _partitions(directory: Path) -> list[Path]:
    named = (child for child in directory.iterdir() if child.name.rpartition("-")[2].isdecimal())
    return sorted(child for child in named if child.is_dir())


def read_entries(path: Path, *, with_records: bool, gaps: bool = False) -> Iterator[Entry]:
    """Return an iterator that reads the entries of one file.

    Each entry has a ``type`` and a list of ``problems``, which may be empty. With ``gaps``, missing
    offsets are no problem. Raises Failure for a file of another kind, OSError if it cannot be read.
    """
    reader = _reader(path)
    if reader is None:
        raise Failure(f"{path} is not a segment, index, snapshot or checkpoint of a log")
    if reader is _batches and (gaps or _was_compacted(path)):
        reader = partial(_batches, gaps=True)
    return _read(path, reader, with_records=with_records)


def _read(
    path: Path, reader: Callable[[Path], Iterator[Entry]], *, with_records: bool
) -> Iterator[Entry]:
    try:
        for entry in reader(path):
            if with_records and entry["type"] == "batch":
                _add_records(path, entry)
            yield {"file": str(path), **entry}
    except ValueError as error:
        problem = {"kind": "unreadable", "message": str(error)}
        size = path.stat().st_size
        yield {"file": str(path), "type": "file", "size": size, "problems": [problem]}


def _reader(path: Path) -> Callable[[Path], Iterator[Entry]] | None:
    return _READERS.get(path.suffix) or _READERS.get(path.name)


def _batches(path: Path, *, gaps: bool = False) -> Iterator[Entry]:
    for report in inspect.inspect_log(str(path), gaps=gaps):
        place = {"position": report.position, "size": report.size}
        problems = _problems(report.problems)
        if report.header is None:
            yield {"type": "damage", **place, "problems": problems}
        else:
            yield {"type": "batch", **place, **_header(report.header), "problems": problems}


def _was_compacted(path: Path) -> bool:
    """Whether a segment is of a log that its broker compacted, so that offsets may be missing."""
    directory = path.absolute().parent
    checkpoint = directory.parent / CLEANER_OFFSETS
    try:
        known = inspect.inspect_offsets(str(checkpoint)) if checkpoint.exists() else {}
    except (OSError, ValueError):
        return False
    return any(str(partition) == directory.name for partition in known)


def _header(header: BatchHeader) -> Entry:
    try:
        compression = header.compression.name.lower()
    except CorruptBatch:
        compression = None
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records_count": header.records_count,
        "leader_epoch": header.partition_leader_epoch,
        "crc": header.crc,
        "compression": compression,
        "timestamp_type": header.timestamp_type.name.lower(),
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "hidden": header.is_hidden,
        "delayed": header.is_delayed,
        "in_transaction": header.in_transaction,
        "marker": header.is_marker,
        "delete_horizon": horizon_of(header),
    }


def _add_records(path: Path, entry: Entry) -> None:
    with path.open("rb") as file:
        file.seek(entry["position"])
        batch = file.read(entry["size"])
    if entry["marker"]:
        _add_marker(entry, batch)
        return
    is_control = entry["hidden"] and not entry["delayed"]
    records: list[Entry] = []
    try:
        if is_control:
            records.extend(control_fields(batch))
        else:
            records.extend(map(record_fields, iter_records(batch)))
    except CorruptBatch as error:
        entry["problems"].append({"kind": "bad records", "message": str(error)})
    entry["controls" if is_control else "records"] = records


def _add_marker(entry: Entry, batch: bytes) -> None:
    """What ends a transaction, and how; of one that compaction has emptied, nothing."""
    entry["controls"] = []
    try:
        marker = read_marker(batch)
    except CorruptBatch as error:
        entry["problems"].append({"kind": "bad records", "message": str(error)})
        return
    if marker is not None:
        entry["controls"].append(
            {
                "offset": entry["base_offset"],
                "type": "commit" if marker.is_commit else "abort",
                "coordinator_epoch": marker.coordinator_epoch,
            }
        )


def _offset_index(path: Path) -> Iterator[Entry]:
    index = inspect.inspect_offset_index(str(path))
    return _index(path, index, "offset", ("offset", "position"))


def _time_index(path: Path) -> Iterator[Entry]:
    index = inspect.inspect_time_index(str(path))
    return _index(path, index, "time", ("timestamp", "offset"))


def _control_index(path: Path) -> Iterator[Entry]:
    index = inspect.inspect_control_index(str(path))
    for report in index.entries:
        yield {
            "type": "boundary",
            "offset": report.offset,
            "position": report.position,
            "hidden": report.begins_hidden,
            "problems": _problems(report.problems),
        }
    if index.problems:
        problems = _problems(index.problems)
        yield {"type": "file", "size": path.stat().st_size, "problems": problems}


def _transaction_index(path: Path) -> Iterator[Entry]:
    index = inspect.inspect_transaction_index(str(path))
    for report in index.entries:
        yield {
            "type": "aborted transaction",
            "producer_id": report.entry.producer_id,
            "first_offset": report.entry.first_offset,
            "last_offset": report.entry.last_offset,
            "stable_offset": report.entry.stable_offset,
            "problems": _problems(report.problems),
        }
    if index.problems:
        problems = _problems(index.problems)
        yield {"type": "file", "size": path.stat().st_size, "problems": problems}


def _control_snapshot(path: Path) -> Iterator[Entry]:
    fold = inspect.inspect_controls(str(path), PartitionFold)
    delays, queues = fold.part(DelayFold), fold.part(QueueFold)
    assert delays is not None
    assert queues is not None
    yield {
        "type": "held back",
        "pending": delays.pending,
        "next_due": delays.schedule.next_due(),
        "bound": delays.bound,
        "rescheduled": len(delays.rescheduled),
        "problems": [],
    }
    for name, group in queues.groups.items():
        yield {
            "type": "queue",
            "group": name,
            "start": group.start,
            "done": group.done.size,
            "returned": group.returned.size,
            "problems": [],
        }


def _index(
    path: Path, index: inspect.IndexReport[Any], kind: str, names: tuple[str, str]
) -> Iterator[Entry]:
    unused = {"offset": int(path.stem), "position": 0, "timestamp": 0}  # a broker reserves zeros
    used = len(index.entries)
    while used and all(getattr(index.entries[used - 1], name) == unused[name] for name in names):
        used -= 1
    for report in index.entries[:used]:
        values = {name: getattr(report, name) for name in names}
        yield {"type": kind, **values, "problems": _problems(report.problems)}
    if used < len(index.entries):
        yield {"type": "reserved", "entries": len(index.entries) - used, "problems": []}
    if index.problems:
        problems = _problems(index.problems)
        yield {"type": "file", "size": path.stat().st_size, "problems": problems}


def _snapshot(path: Path) -> Iterator[Entry]:
    for report in inspect.inspect_snapshot(str(path)):
        if report.is_ended:
            yield {
                "type": "ended transaction",
                "first_offset": report.transaction_start,
                "last_offset": report.batch.last_offset,
                "problems": [],
            }
            continue
        has_batch = report.batch.last_offset >= 0
        yield {
            "type": "producer",
            "producer_id": report.producer_id,
            "producer_epoch": report.epoch,
            "first_sequence": report.batch.first_sequence if has_batch else -1,
            "last_sequence": report.batch.last_sequence,
            "last_offset": report.batch.last_offset,
            "timestamp": report.batch.timestamp,
            "coordinator_epoch": report.coordinator_epoch,
            "transaction_start": report.transaction_start,
            "problems": [],
        }


def _epochs(path: Path) -> Iterator[Entry]:
    for epoch, start_offset in inspect.inspect_epochs(str(path)):
        yield {
            "type": "epoch",
            "leader_epoch": epoch,
            "start_offset": start_offset,
            "problems": [],
        }


def _manifest(path: Path) -> Iterator[Entry]:
    found = inspect.inspect_manifest(str(path.absolute()))
    yield {
        "type": "manifest",
        "topic_id": topic_id(UUID(bytes=found.topic_id)),
        "log_start_offset": found.log_start_offset,
        "recovery_point": found.recovery_point,
        "snapshots": sorted(found.snapshots),
        "control_snapshots": sorted(found.control_snapshots),
        "problems": [],
    }
    for segment in found.segments:
        problems = inspect.check_listed(str(path), segment)
        yield {"type": "segment", **segment._asdict(), "problems": _problems(problems)}


def _checkpoint(path: Path) -> Iterator[Entry]:
    for (topic, partition), offset in sorted(inspect.inspect_offsets(str(path)).items()):
        yield {
            "type": "checkpoint",
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "problems": [],
        }


def _partition_metadata(path: Path) -> Iterator[Entry]:
    found = UUID(bytes=inspect.inspect_partition_metadata(str(path)))
    yield {"type": "topic", "topic_id": topic_id(found), "problems": []}


def _problems(problems: Iterable[inspect.Problem]) -> list[Entry]:
    return [{"kind": str(problem.kind), "message": problem.message} for problem in problems]


_READERS: dict[str, Callable[[Path], Iterator[Entry]]] = {
    ".log": _batches,
    ".index": _offset_index,
    ".timeindex": _time_index,
    ".controlindex": _control_index,
    ".txnindex": _transaction_index,
    ".snapshot": _snapshot,
    ".control": _control_snapshot,
    LEADER_EPOCHS: _epochs,
    MANIFEST: _manifest,
    RECOVERY_POINTS: _checkpoint,
    LOG_STARTS: _checkpoint,
    CLEANER_OFFSETS: _checkpoint,
    PARTITION_METADATA: _partition_metadata,
}
