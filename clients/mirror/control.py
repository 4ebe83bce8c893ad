"""The configuration of a mirror that is in force, and where ZooKeeper has it.

``/mirrors/<link>/config``: TOML, as operators wrote it. ``/mirrors/<link>/processes/<process>``:
JSON, ephemeral. Names are escaped like those of consumer groups.
"""

from collections.abc import Awaitable, Callable

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
    apply: Callable[[MirrorConfig], Awaitable[None]], zookeeper: ZooKeeperAddress | None
) -> Configured[MirrorConfig]:
    """Return what applies a mirror's configurations.

    By default the target is the cluster that is registered in ``zookeeper``.
    """
    defaults = {} if zookeeper is None else {"target": {"bootstrap": f"zk://{zookeeper}"}}
    return Configured(lambda text: parse(text, defaults=defaults), apply)
