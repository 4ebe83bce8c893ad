"""Changing the committed offsets of a group: planned first, then committed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qbus.cli.failures import Failure, Misuse
from qbus.cli.output import Document
from qbus.clients.types import EARLIEST, LATEST, TopicPartition
from qbus.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from qbus.cli.parameters import Position
    from qbus.clients import Admin


async def plan_reset(
    admin: "Admin",
    group: str,
    topics: Sequence[str],
    to: "Position | None",
    shift_by: int | None,
) -> list[Document]:
    """Return ``from`` and ``to`` of each partition; ``to`` is kept within the bounds of the log.

    ``topics`` are of the form ``TOPIC`` or ``TOPIC:0,2``; by default, all with committed offsets.
    """
    committed = await _committed(admin, group)
    partitions = await _partitions(admin, topics) if topics else sorted(committed)
    if not partitions:
        raise Failure(f"group {group} has no committed offsets: name a --topic")
    if shift_by is not None:
        targets = {p: _shifted(committed, p, shift_by) for p in partitions}
    else:
        assert to is not None
        targets = await _targets(admin, partitions, to)
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    return [
        {
            "topic": p.topic,
            "partition": p.partition,
            "from": committed.get(p),
            "to": min(max(targets[p], starts[p].offset), ends[p].offset),
        }
        for p in partitions
    ]


async def apply_reset(admin: "Admin", group: str, changes: Sequence[Document]) -> None:
    """Commit the planned offsets; raises Failure if the group has members."""
    try:
        members = (await admin.describe_group(group)).members
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        members = ()
    if members:
        raise Failure(f"group {group} has members ({len(members)}): stop them first")
    offsets = {TopicPartition(c["topic"], c["partition"]): int(c["to"]) for c in changes}
    await admin.alter_group_offsets(group, offsets)


async def _committed(admin: "Admin", group: str) -> dict[TopicPartition, int]:
    found = await admin.committed_offsets(group)
    return {place: at.offset for place, at in found.items() if at.offset >= 0}


async def _partitions(admin: "Admin", topics: Sequence[str]) -> list[TopicPartition]:
    found: set[TopicPartition] = set()
    for text in topics:
        name, colon, indexes = text.partition(":")
        existing = {p.index for p in (await admin.describe_topic(name)).partitions}
        wanted = _indexes(text, indexes) if colon else existing
        if missing := wanted - existing:
            raise Failure(f"topic {name} has no partition {min(missing)}")
        found.update(TopicPartition(name, index) for index in wanted)
    return sorted(found)


def _indexes(text: str, indexes: str) -> set[int]:
    parts = indexes.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise Misuse(f"{text!r} is not of the form TOPIC or TOPIC:0,2.")
    return {int(part) for part in parts}


def _shifted(committed: dict[TopicPartition, int], partition: TopicPartition, by: int) -> int:
    if partition not in committed:
        raise Failure(
            f"nothing is committed for {partition.topic}-{partition.partition}: use --to instead"
        )
    return committed[partition] + by


async def _targets(
    admin: "Admin", partitions: Sequence[TopicPartition], to: "Position"
) -> dict[TopicPartition, int]:
    if to.kind == "offset":
        return dict.fromkeys(partitions, to.value)
    time = {"earliest": EARLIEST, "latest": LATEST, "time": to.value}[to.kind]
    found = await admin.list_offsets(dict.fromkeys(partitions, time))
    if to.kind == "time" and any(offset.offset < 0 for offset in found.values()):
        # No record is that recent: use the end of the log.
        found |= await admin.list_offsets(
            {p: LATEST for p, offset in found.items() if offset.offset < 0}
        )
    return {p: offset.offset for p, offset in found.items()}
