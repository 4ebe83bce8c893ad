"""Batches of replicas that brokers cannot read."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from qbus.cli.output import Document
from qbus.cli.units import format_seconds

if TYPE_CHECKING:
    from qbus.clients.types import LogDir


def damaged(directories: Iterable["LogDir"]) -> list[Document]:
    """The batches that cannot be read, by topic, partition, broker and offset."""
    found = [
        {
            "topic": replica.topic,
            "partition": replica.partition,
            "broker": directory.node_id,
            "first_offset": one.first_offset,
            "last_offset": None if one.last_offset < 0 else one.last_offset,
            "file": one.path,
            "position": one.position,
            "size": one.size,
            "since": one.since_ms,
            "problem": one.problem,
        }
        for directory in directories
        for replica in directory.replicas
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
