"""The metadata store in ZooKeeper, and what clients find there. Only here is kazoo imported."""

from .address import ZooKeeperAddress
from .discovery import find_brokers

__all__ = ["ZooKeeperAddress", "find_brokers"]
