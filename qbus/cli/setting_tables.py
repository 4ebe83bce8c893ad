"""How settings look to people."""

from typing import TYPE_CHECKING, Any

from qbus.cli.output import table

if TYPE_CHECKING:
    from rich.console import RenderableType


def settings(entries: list[dict[str, Any]]) -> "RenderableType":
    """One line a setting: what it is, and where it comes from."""
    if not entries:
        return "Every setting has its default: --all shows them."
    return table(
        "setting",
        "value",
        "source",
        rows=((entry["name"], _value(entry), _source(entry)) for entry in entries),
    )


def _value(entry: dict[str, Any]) -> str | None:
    return "(hidden)" if entry["sensitive"] else entry["value"]


def _source(entry: dict[str, Any]) -> str:
    source = str(entry["source"]).replace("_", " ")
    return f"{source}, read-only" if entry["read_only"] else source
