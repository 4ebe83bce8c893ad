"""Showing and changing the settings of a topic or a broker."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from qbus.cli.documents import setting
from qbus.cli.output import Document, note, table
from qbus.clients.types import ConfigKind
from qbus.config.without_effect import warnings_without_effect

if TYPE_CHECKING:
    from rich.console import RenderableType

    from qbus.clients import Admin


async def change_and_show(
    admin: "Admin",
    kind: ConfigKind,
    name: str,
    *,
    to_set: Iterable[tuple[str, str]],
    unset: Sequence[str],
    show_all: bool,
) -> list[Document]:
    """Change settings, if asked to; return the settings after the change.

    Default values are left out unless ``show_all``.
    """
    changes = dict(to_set)
    if changes or unset:
        await admin.alter_config(kind, name, set=changes, unset=unset)
        if kind is ConfigKind.BROKER:
            for warning in warnings_without_effect(changes):
                note(f"qbus: {warning}")
    entries = await admin.describe_config(kind, name)
    return [setting(entry) for entry in entries if show_all or not entry.is_default]


def settings(entries: list[dict[str, Any]]) -> "RenderableType":
    """One line for each setting: its value and where that comes from."""
    if not entries:
        return "Every setting has its default: --all shows them."
    return table(
        "setting",
        "value",
        "source",
        whole=("setting", "source"),
        rows=((entry["name"], _value(entry), _source(entry)) for entry in entries),
    )


def _value(entry: dict[str, Any]) -> str | None:
    return "(hidden)" if entry["sensitive"] else entry["value"]


def _source(entry: dict[str, Any]) -> str:
    source = str(entry["source"]).replace("_", " ")
    return f"{source.removesuffix(' broker')}, read-only" if entry["read_only"] else source
