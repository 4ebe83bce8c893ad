"""Data directories that are offline or full, in the views of topics and of the cluster."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from qbus.errors import ApiError

if TYPE_CHECKING:
    from qbus.clients import Admin
    from qbus.clients.types import LogDir

PATIENCE_S = 3.0
"""How long a view waits for one broker, which may be dead, or for a leader."""


async def directories_of(admin: "Admin", nodes: Iterable[int]) -> "list[LogDir]":
    """Return the data directories of brokers; those that do not answer soon are left out.

    So are those that the user may not see.
    """

    async def of(node: int) -> "list[LogDir]":
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await admin.describe_log_dirs([node])
        except (ApiError, TimeoutError):
            return []

    found = await asyncio.gather(*(of(node) for node in nodes))
    return [directory for of_one in found for directory in of_one]


def failing(directories: "Iterable[LogDir]") -> "list[LogDir]":
    """Those that are offline, or take no records."""
    return [one for one in directories if one.problem or not one.is_online]


def document(directory: "LogDir") -> dict[str, Any]:
    """A failing directory, for a document."""
    return {
        "broker": directory.node_id,
        "path": directory.path,
        "online": directory.is_online,
        "reason": directory.problem or None,
    }


def line(found: dict[str, Any]) -> str:
    """A sentence about a failing directory."""
    state = "takes no records" if found["online"] else "is offline"
    reason = f": {found['reason']}" if found["reason"] else ""
    return f"Broker {found['broker']}: {found['path']} {state}{reason}"
