"""The only import of kazoo, which is optional."""

from qbus.errors import ConfigError
from qbus.extras import lacks

try:
    from kazoo import exceptions
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import SequentialThreadingHandler
    from kazoo.protocol import serialization
    from kazoo.protocol.states import KazooState
    from kazoo.retry import KazooRetry
    from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE
except ImportError as error:
    raise ConfigError(lacks("ZooKeeper needs kazoo", "zookeeper")) from error

__all__ = [
    "CREATOR_ALL_ACL",
    "OPEN_ACL_UNSAFE",
    "READ_ACL_UNSAFE",
    "KazooClient",
    "KazooRetry",
    "KazooState",
    "SequentialThreadingHandler",
    "exceptions",
    "serialization",
]
