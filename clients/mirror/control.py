"""The configuration of a mirror that is in force, and where ZooKeeper has it.

``/mirrors/<link>/config``: TOML, as operators wrote it. ``/mirrors/<link>/processes/<process>``:
JSON, ephemeral. Names are escaped like those of consumer groups.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from qbus.metadata.zookeeper import ZooKeeperAddress
from qbus.names import escape
from qbus.service.control import Configured

from .config import MirrorConfig, parse

MIRRORS = "/mirrors"


def config_path(link: str) -> str:
    """Return the node with the configuration of a link."""
    return f"{MIRRORS}/{escape(link)}/config"


def processes_path(link: str) -> str:
    """Return the node below which the processes that run a link publish their status."""
    return f"{MIRRORS}/{escape(link)}/processes"


def status_path(link: str, process: str) -> str:
    """Return the node with the status of one process."""
    return f"{processes_path(link)}/{escape(process)}"


def configured_mirror(
    apply: Callable[[MirrorConfig], Awaitable[None]],
    zookeeper: ZooKeeperAddress | None,
    command_config: Path | None = None,
) -> Configured[MirrorConfig]:
    """Return what applies a mirror's configurations.

    By default the target is the cluster that is registered in ``zookeeper``, and ``command_config``
    is a file of properties that says how to connect to it.
    """
    defaults = target_defaults(None if zookeeper is None else f"zk://{zookeeper}", command_config)
    return Configured(lambda text: parse(text, defaults=defaults), apply)


def target_defaults(bootstrap: str | None, command_config: Path | None) -> dict[str, Any]:
    """Return what holds for the target where a configuration does not say."""
    target: dict[str, Any] = {}
    if bootstrap is not None:
        target["bootstrap"] = bootstrap
    if command_config is not None:
        target["security"] = {"file": str(command_config.resolve())}
    return {"target": target} if target else {}
