"""Where the way to a cluster begins: brokers that are named, or those that ZooKeeper knows.

Asked again whenever no broker that was known before answers (KIP-899).
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

from qbus.errors import ConfigError

from .addresses import parse_bootstrap

ZOOKEEPER = "zk://"

Address = tuple[str, int]


class Bootstrap(Protocol):
    """Finds brokers to begin with."""

    async def find(self, timeout: float) -> Sequence[Address]:
        """Hosts and ports, within ``timeout`` seconds; raises ApiError when there are none now."""


class NamedBrokers:
    """``host:port,...``: as they were named; their names are looked up at each connection."""

    def __init__(self, text: str) -> None:
        self._addresses = parse_bootstrap(text)

    async def find(self, timeout: float) -> Sequence[Address]:  # noqa: ARG002 - nothing to wait for
        """The addresses that were named."""
        return self._addresses


class RegisteredBrokers:
    """``zk://host:port,.../chroot``: those that are registered in ZooKeeper at the time."""

    def __init__(self, text: str) -> None:
        hosts, slash, chroot = text.removeprefix(ZOOKEEPER).partition("/")
        if not hosts.strip(", "):
            raise ConfigError(f"{text!r} names no ZooKeeper: zk://host:port,.../chroot is meant")
        self._address = f"{ZOOKEEPER}{hosts}{slash}{chroot}"

    async def find(self, timeout: float) -> Sequence[Address]:
        """The brokers that live.

        Raises :class:`~qbus.errors.ApiError` when ZooKeeper cannot be reached or knows of none,
        :class:`~qbus.errors.ConfigError` when the client for it is not installed.
        """
        try:
            zookeeper = import_module("qbus.metadata.zookeeper")  # which needs an optional extra
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"{ZOOKEEPER} needs {error.name}: pip install 'qbus[zookeeper]'"
            ) from error
        found: list[Address] = await zookeeper.find_brokers(self._address, timeout)
        return found


def parse(text: str) -> Bootstrap:
    """The bootstrap that ``text`` describes; raises :class:`~qbus.errors.ConfigError`."""
    if text.strip().startswith(ZOOKEEPER):
        return RegisteredBrokers(text.strip())
    return NamedBrokers(text)
