"""Where mirrors have their nodes in ZooKeeper.

``/mirrors/<link>/config``: TOML, as operators wrote it. ``/mirrors/<link>/processes/<process>``:
JSON, gone with the process. Names are escaped as those of groups are.
"""

from qbus.names import escape

MIRRORS = "/mirrors"


def config_path(link: str) -> str:
    """Where the configuration of a link is."""
    return f"{MIRRORS}/{escape(link)}/config"


def processes_path(link: str) -> str:
    """Below which the processes that run a link tell of themselves."""
    return f"{MIRRORS}/{escape(link)}/processes"


def status_path(link: str, process: str) -> str:
    """Where one process tells of itself."""
    return f"{processes_path(link)}/{escape(process)}"
