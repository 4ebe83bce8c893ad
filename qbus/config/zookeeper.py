"""Broker configuration: the ZooKeeper that holds the cluster's metadata."""

from typing import TYPE_CHECKING

from qbus.config.settings import Settings, boolean, integer, string, unset
from qbus.config.types import ConfigType

if TYPE_CHECKING:
    from qbus.metadata.zookeeper import ZooKeeperAddress


def _parse(text: str) -> "ZooKeeperAddress":
    from qbus.metadata.zookeeper import ZooKeeperAddress  # noqa: PLC0415 - most name none

    return ZooKeeperAddress.parse(text)


def _maybe_servers(text: str) -> None:
    if text:
        _parse(text)


def _user_and_password(text: str) -> None:
    user, colon, password = text.partition(":")
    if not (user and colon and password):
        raise ValueError("user:password")


class ZooKeeperKeys(Settings):
    """The address of ZooKeeper, the time-outs and the access to it."""

    __slots__ = ()

    zookeeper_connect = string(
        "",
        "The ZooKeeper servers that hold the metadata, as host:port,host:port/chroot. "
        "Empty: a file in the first data directory holds it.",
        static=True,
        check=_maybe_servers,
    )
    zookeeper_session_timeout_ms = integer(
        9_000,
        "A broker is considered dead when ZooKeeper has not heard from it for this time.",
        unit="ms",
        at_least=1,
        static=True,
    )
    zookeeper_connection_timeout_ms = unset(
        ConfigType.INT,
        "How long a broker waits for ZooKeeper at start-up. Not set: zookeeper.session.timeout.ms.",
        unit="ms",
        at_least=1,
        static=True,
    )
    zookeeper_digest = unset(
        ConfigType.PASSWORD,
        "Credentials for ZooKeeper's digest authentication, as user:password.",
        static=True,
        check=_user_and_password,
    )
    zookeeper_set_acl = boolean(
        False,
        "Whether only the zookeeper.digest user may change what brokers write. Anyone may read it.",
        static=True,
    )

    @property
    def zookeeper_address(self) -> "ZooKeeperAddress | None":
        """The address of ZooKeeper, if it is configured."""
        return _parse(self.zookeeper_connect) if self.zookeeper_connect else None
