"""Who tells an agent what to do: ZooKeeper, or a file of its own; and who hears how it goes."""

from .central import central_control, start_with
from .configured import configured_agent
from .last_good import LastGood
from .nodes import AGENTS, config_path, status_path

__all__ = [
    "AGENTS",
    "LastGood",
    "central_control",
    "config_path",
    "configured_agent",
    "start_with",
    "status_path",
]
