"""What agents have in ZooKeeper, for the command."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qbus.agent.config import AgentConfig, parse
from qbus.agent.control import AGENTS, status_path
from qbus.cli.failures import Failure
from qbus.errors import ConfigError
from qbus.metadata import MetadataStore
from qbus.names import unescape

Status = dict[str, Any]


def check(text: bytes, origin: str, *, is_central: bool) -> AgentConfig:
    """The configuration in ``text``; Failure, beginning with ``origin``, for what is none."""
    defaults = {"bootstrap": "zk://of-the-agent"} if is_central else {}
    try:
        return parse(text, defaults=defaults)
    except ConfigError as error:
        raise Failure(f"{origin}: {error}") from error


async def read_statuses(store: MetadataStore, names: Sequence[str]) -> list[Status]:
    """The statuses of agents that run; Failure for a name that none of them has."""
    wanted = names or [unescape(node) for node in await store.children(AGENTS)]
    nodes = await store.get_many([status_path(name) for name in wanted])
    found = []
    for name in wanted:
        node = nodes.get(status_path(name))
        if node is not None:
            found.append(_decode(node.data, name))
        elif names:
            raise Failure(f"no agent {name} is connected to ZooKeeper.")
    return found


def read_local(data_dir: Path) -> Status:
    """The status that the agent with this directory wrote; Failure if none did.

    Its ``running`` says whether that agent lives.
    """
    from qbus.agent.status import LOCK_FILE, STATUS_FILE
    from qbus.service.lock import is_locked

    try:
        status = _decode((data_dir / STATUS_FILE).read_bytes(), str(data_dir))
    except FileNotFoundError as error:
        raise Failure(f"no agent has run with {data_dir}.") from error
    return {**status, "running": is_locked(data_dir / LOCK_FILE)}


def _decode(data: bytes, name: str) -> Status:
    try:
        status: Status = json.loads(data)
    except ValueError as error:
        raise Failure(f"the status of {name} cannot be read: {error}") from error
    return {**status, "running": True}
