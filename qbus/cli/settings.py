"""Showing and changing the settings of a topic or a broker."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from qbus.cli.documents import Document, setting

if TYPE_CHECKING:
    from qbus.clients import Admin
    from qbus.clients.types import ConfigKind


async def change_and_show(
    admin: "Admin",
    kind: "ConfigKind",
    name: str,
    *,
    to_set: Iterable[tuple[str, str]],
    unset: Sequence[str],
    show_all: bool,
) -> list[Document]:
    """Make the changes asked for, if any; return the settings as they are then.

    Those that nobody set are left out unless ``show_all``.
    """
    changes = dict(to_set)
    if changes or unset:
        await admin.alter_config(kind, name, set=changes, unset=unset)
    entries = await admin.describe_config(kind, name)
    return [setting(entry) for entry in entries if show_all or not entry.is_default]
