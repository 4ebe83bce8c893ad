"""Tables of moves of partitions."""

import json
from typing import TYPE_CHECKING, Any

from qbus.cli.output import Remark, table
from qbus.cli.units import counted

if TYPE_CHECKING:
    from rich.console import RenderableType


def begun(document: dict[str, Any]) -> str:
    """How many partitions move, and the plan that moves them back."""
    back = json.dumps(document["before"])
    return f"Moving {counted(len(document['moving']), 'partition')}. This plan moves back:\n{back}"


def progress(document: dict[str, Any]) -> "RenderableType":
    """One line for each partition."""
    from rich.console import Group

    rows = [(p["topic"], p["partition"], p["state"], p["replicas"]) for p in document["partitions"]]
    note = "No partition is moving: the throttle is removed." if document["throttle_lifted"] else ""
    return Group(table("topic", "#partition", "state", "replicas", rows=rows), note)


def moves(documents: list[dict[str, Any]]) -> "RenderableType":
    """One line for each partition that moves."""
    if not documents:
        return Remark("No partition is moving.")
    rows = (
        (move["topic"], move["partition"], move["replicas"], move["adding"], move["removing"])
        for move in documents
    )
    return table("topic", "#partition", "replicas", "adding", "removing", rows=rows)


def cancelled(documents: list[dict[str, Any]]) -> "RenderableType":
    """The moves that were cancelled."""
    if not documents:
        return Remark("None of these partitions was moving.")
    return "\n".join(f"Cancelled {move['topic']}-{move['partition']}." for move in documents)
