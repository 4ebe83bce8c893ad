"""Where agents have their nodes in ZooKeeper.

``/agents/<agent or group>/config``: TOML, as operators wrote it. ``/agents/<agent>/status``: JSON,
gone with the agent. Names are escaped as those of groups are.
"""

from qbus.names import escape

AGENTS = "/agents"


def config_path(name: str) -> str:
    """Where the configuration of an agent, or of a group of agents, is."""
    return f"{AGENTS}/{escape(name)}/config"


def status_path(name: str) -> str:
    """Where an agent that runs tells of itself."""
    return f"{AGENTS}/{escape(name)}/status"
