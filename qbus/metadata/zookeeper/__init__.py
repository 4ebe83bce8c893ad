"""The metadata store in ZooKeeper, and the discovery of brokers there.

Only this package imports kazoo.
The store itself is ``qbus.metadata.zookeeper.store.ZooKeeperStore``; importing it needs kazoo.
"""

from qbus.metadata.zookeeper.address import ZooKeeperAddress
from qbus.metadata.zookeeper.discovery import find_brokers

__all__ = ["ZooKeeperAddress", "find_brokers"]
