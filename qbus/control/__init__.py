"""Who tells a daemon what to do: ZooKeeper, or a file of its own; and who hears how it goes."""

from .central import CentralControl
from .configured import Configured, Origin

__all__ = ["CentralControl", "Configured", "Origin"]
