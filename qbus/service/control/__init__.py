"""The control of daemons: a configuration from ZooKeeper or a file, a status to ZooKeeper."""

from qbus.service.control.central import CentralControl
from qbus.service.control.configured import Configured, Origin
from qbus.service.control.file import LastGood

__all__ = ["CentralControl", "Configured", "LastGood", "Origin"]
