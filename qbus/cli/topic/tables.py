"""Tables of topics and partitions."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from qbus.cli import failing_directories
from qbus.cli.output import Remark, table
from qbus.cli.topic.replicas import damage_sentence
from qbus.cli.units import counted, format_seconds, format_size

if TYPE_CHECKING:
    from rich.console import RenderableType


def topic_list(topics: list[dict[str, Any]]) -> "RenderableType":
    """One line for each topic."""
    if not topics:
        return Remark("No topics yet: create one with 'qbus topic create NAME'.")
    # Partitions without a leader are rare: most tables do without the column.
    shows_offline = any(t["offline"] for t in topics)
    return table(
        "topic",
        "#partitions",
        *["#offline"] * shows_offline,
        "#replicas",
        "id",
        rows=(
            (
                t["name"],
                t["partitions"],
                *[len(t["offline"])] * shows_offline,
                t["replication_factor"],
                t["id"],
            )
            for t in topics
        ),
    )


def incomplete(topics: list[dict[str, Any]]) -> str:
    """Say which described partitions cannot be read; empty: all can be."""
    unread = [
        f"{topic['name']}-{part['partition']}: {part['unread']}"
        for topic in topics
        for part in topic["partitions"]
        if part["unread"]
    ]
    more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
    return f"{unread[0]}{more}" if unread else ""


def topic_descriptions(topics: list[dict[str, Any]]) -> "RenderableType":
    """A headline and a table of partitions for each topic."""
    from rich.console import Group

    if not topics:
        return Remark("No such partitions.")
    parts: list[RenderableType] = []
    for topic in topics:
        if parts:
            parts.append("")
        parts += [_headline(topic), _partitions(topic["partitions"])]
    return Group(*parts)


def _headline(topic: dict[str, Any]) -> "RenderableType":
    from rich.text import Text

    partitions = topic["partitions"]
    records = sum(p["end_offset"] - p["start_offset"] for p in partitions if _is_known(p))
    unread = sum(not _is_known(p) for p in partitions)
    size = sum(p["size"] or 0 for p in partitions)
    settings = ", ".join(f"{key}={value}" for key, value in topic["config"].items())
    line = Text.assemble(
        (topic["name"], "bold"),
        f"  {counted(len(partitions), 'partition')}, {counted(records, 'record')}",
        f" without {counted(unread, 'partition')} that cannot be read" if unread else "",
        f", {format_size(size)}, id {topic['id']}",
    )
    if settings:
        line.append(f"\n{settings}")
    if topic["delayed"] is not None:
        line.append(f"\n{held_back(**topic['delayed'])}")
    for trouble in topic["uncompacted"]:
        line.append(
            f"\nPartition {trouble['partition']} is damaged on broker {trouble['broker']}, and not"
            f" compacted there: {trouble['reason']}",
            "red",
        )
    for entry in topic["damaged"]:
        line.append(f"\n{damage_sentence(entry)}", "red")
    for part in partitions:
        if part["unread"]:
            line.append(f"\nPartition {part['partition']} cannot be read: {part['unread']}", "red")
    for found in topic["failing_directories"]:
        line.append(f"\n{failing_directories.line(found)}", "red")
    return line


def held_back(pending: int, next_due: int | None, unread: int = 0) -> str:
    """A sentence about delayed records; ``next_due`` in milliseconds since the Unix epoch.

    ``unread``: partitions of which that is not known.
    """
    known = f", without {counted(unread, 'partition')} that cannot be read" if unread else ""
    if not pending or next_due is None:
        return f"Nothing is known to be held back{known}." if unread else "Nothing is held back."
    ahead_s = next_due / 1000 - time.time()
    when = f"in {format_seconds(ahead_s)}" if ahead_s >= 0 else "now"
    return f"{counted(pending, 'record')} held back{known}; the next is due {when}."


def _is_known(partition: dict[str, Any]) -> bool:
    return partition["start_offset"] is not None and partition["end_offset"] is not None


def _partitions(partitions: Iterable[dict[str, Any]]) -> "RenderableType":
    partitions = list(partitions)
    # Replicas out of sync that may lead (KIP-966) are rare: most tables do without the column.
    shows_eligible = any(p["elr"] for p in partitions)
    columns = ["#partition", "#leader", "#epoch", "replicas", "in sync"]
    columns += ["eligible"] * shows_eligible
    return table(
        *columns,
        "#start",
        "#end",
        "#size",
        rows=(
            (
                p["partition"],
                p["leader"],
                p["leader_epoch"],
                p["replicas"],
                p["isr"],
                *([p["elr"]] if shows_eligible else []),
                p["start_offset"],
                p["end_offset"],
                None if p["size"] is None else format_size(p["size"]),
            )
            for p in partitions
        ),
    )
