"""Who tells a daemon what to do: ZooKeeper, or a file of its own; and who hears how it goes."""

from qbus.service.control.central import CentralControl
from qbus.service.control.configured import Configured, Origin

__all__ = ["CentralControl", "Configured", "Origin"]
