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
    """Where it is, how long it waits, and who may write there."""

    __slots__ = ()

    zookeeper_connect = string(
        "",
        "The ZooKeeper that holds the metadata, as host:port,host:port/chroot; "
        "empty: a file in the first data directory.",
        static=True,
        check=_maybe_servers,
    )
    zookeeper_session_timeout_ms = integer(
        9_000,
        "A broker that ZooKeeper has not heard of for so long is taken for dead.",
        unit="ms",
        at_least=1,
        static=True,
    )
    zookeeper_connection_timeout_ms = unset(
        ConfigType.INT,
        "How long a starting broker waits for ZooKeeper. Not set: zookeeper.session.timeout.ms.",
        unit="ms",
        at_least=1,
        static=True,
    )
    zookeeper_digest = unset(
        ConfigType.PASSWORD,
        "Who the broker is to ZooKeeper (digest authentication), as user:password.",
        static=True,
        check=_user_and_password,
    )
    zookeeper_set_acl = boolean(
        False,
        "Whether only zookeeper.digest may write what brokers create. Everybody may read it.",
        static=True,
    )

    @property
    def zookeeper_address(self) -> "ZooKeeperAddress | None":
        """Where ZooKeeper is, if there is one."""
        return _parse(self.zookeeper_connect) if self.zookeeper_connect else None
