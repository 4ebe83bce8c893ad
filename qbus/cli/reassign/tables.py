"""How moves look to people."""

import json
from typing import TYPE_CHECKING, Any

from qbus.cli.output import table

if TYPE_CHECKING:
    from rich.console import RenderableType


def begun(document: dict[str, Any]) -> str:
    """How many move, and the way back."""
    count = len(document["moving"])
    back = json.dumps(document["before"])
    return f"{count} partition{'s' * (count != 1)} on the move; the plan to go back:\n{back}"


def progress(document: dict[str, Any]) -> "RenderableType":
    """One line a partition."""
    from rich.console import Group

    rows = [(p["topic"], p["partition"], p["state"], p["replicas"]) for p in document["partitions"]]
    note = "Nothing moves: no throttle is left." if document["throttle_lifted"] else ""
    return Group(table("topic", "#partition", "state", "replicas", rows=rows), note)


def moves(documents: list[dict[str, Any]]) -> "RenderableType":
    """One line a partition that moves."""
    if not documents:
        return "Nothing moves."
    rows = (
        (move["topic"], move["partition"], move["replicas"], move["adding"], move["removing"])
        for move in documents
    )
    return table("topic", "#partition", "replicas", "adding", "removing", rows=rows)


def cancelled(documents: list[dict[str, Any]]) -> "RenderableType":
    """What was stopped."""
    if not documents:
        return "Nothing of that moved."
    return "\n".join(f"Stopped {move['topic']}-{move['partition']}." for move in documents)
