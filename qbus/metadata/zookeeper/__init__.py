"""The metadata store in ZooKeeper, and what clients find there. Only here is kazoo imported.

The store itself is ``qbus.metadata.zookeeper.store.ZooKeeperStore``; importing that needs kazoo.
"""

from qbus.metadata.zookeeper.address import ZooKeeperAddress
from qbus.metadata.zookeeper.discovery import find_brokers

__all__ = ["ZooKeeperAddress", "find_brokers"]
