"""What brokers report of their replicas' files: sizes, and batches that they cannot read."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from qbus.cli.output import Document
from qbus.cli.units import format_seconds
from qbus.errors import ApiError

if TYPE_CHECKING:
    from qbus.clients import Admin
    from qbus.clients.types import ReplicaSize

PATIENCE_S = 3.0
"""How long one broker's report is waited for: it may be dead."""

Replicas = Mapping[int, "list[ReplicaSize]"]
"""Replicas by broker."""


async def reported_replicas(admin: "Admin", nodes: Iterable[int]) -> Replicas:
    """The replicas of brokers; those of a broker that does not answer soon are left out."""
    asked = sorted(set(nodes))
    found = await asyncio.gather(*(_reported_by(admin, node) for node in asked))
    return dict(zip(asked, found, strict=True))


async def _reported_by(admin: "Admin", node: int) -> "list[ReplicaSize]":
    try:
        async with asyncio.timeout(PATIENCE_S):
            directories = await admin.describe_log_dirs([node])
    except (ApiError, TimeoutError):
        return []
    return [replica for directory in directories for replica in directory.replicas]


def damaged(replicas: Replicas) -> list[Document]:
    """The batches that cannot be read, by topic, partition, broker and offset."""
    found = [
        {
            "topic": replica.topic,
            "partition": replica.partition,
            "broker": node,
            "first_offset": one.first_offset,
            "last_offset": None if one.last_offset < 0 else one.last_offset,
            "file": one.path,
            "position": one.position,
            "size": one.size,
            "since": one.since_ms,
            "problem": one.problem,
        }
        for node, held in replicas.items()
        for replica in held
        for one in replica.damage
    ]
    return sorted(found, key=_order)


def _order(entry: Document) -> tuple[str, int, int, int]:
    return entry["topic"], entry["partition"], entry["broker"], entry["first_offset"]


def damage_sentence(entry: dict[str, Any]) -> str:
    """A sentence about damaged batches."""
    first, last = entry["first_offset"], entry["last_offset"]
    ago_s = max(time.time() - entry["since"] / 1000, 0)
    place = f"{entry['topic']}-{entry['partition']} on broker {entry['broker']}"
    where = f"{entry['file']} at {entry['position']}"
    found = f"found {format_seconds(ago_s)} ago: {entry['problem']}"
    if last is None:
        return f"{place} is not served: its log is damaged from offset {first} on, {where}, {found}"
    offsets = f"offset {first} is" if first == last else f"offsets {first} to {last} are"
    return f"{place}: {offsets} damaged, {where}, {found}"
