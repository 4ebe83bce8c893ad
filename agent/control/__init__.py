"""Who tells an agent what to do: ZooKeeper, or a file of its own; and who hears how it goes."""

from .central import CentralControl
from .configured import Configured
from .last_good import LastGood
from .nodes import AGENTS, config_path, status_path

__all__ = ["AGENTS", "CentralControl", "Configured", "LastGood", "config_path", "status_path"]
