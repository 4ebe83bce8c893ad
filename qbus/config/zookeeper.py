"""Broker configuration: the ZooKeeper that holds the cluster's metadata."""

from typing import TYPE_CHECKING

from qbus.config.settings import Settings, boolean, integer, string, unset
from qbus.config.types import ConfigType

if TYPE_CHECKING:
    from qbus.metadata.zookeeper import ZooKeeperAddress
    from qbus.metadata.zookeeper.security import ZooKeeperSecurity


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


def is_pem(path: str) -> None:
    """Refuse files in Java's formats. Raises ValueError."""
    if path.lower().endswith((".jks", ".p12", ".pfx")):
        raise ValueError(
            "a PEM file: convert it with `openssl pkcs12 -in FILE -out FILE.pem` (a JKS store first"
            " with `keytool -importkeystore -deststoretype pkcs12`)"
        )


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
        "Whether only the zookeeper.digest user may change what brokers write. Anyone may read it, "
        "except what may have secrets in it: credentials of users and settings of brokers.",
        static=True,
    )
    zookeeper_ssl_client_enable = boolean(
        False, "Whether connections to ZooKeeper are encrypted with TLS.", static=True
    )
    zookeeper_ssl_keystore_location = unset(
        ConfigType.STRING,
        "PEM file of this broker's certificate for ZooKeeper, and of its key.",
        static=True,
        check=is_pem,
    )
    zookeeper_ssl_keystore_password = unset(
        ConfigType.PASSWORD,
        "What decrypts the key in zookeeper.ssl.keystore.location.",
        static=True,
    )
    zookeeper_ssl_truststore_location = unset(
        ConfigType.STRING,
        "PEM file of the authorities that sign ZooKeeper's certificates. Not set: those that the "
        "system trusts.",
        static=True,
        check=is_pem,
    )
    zookeeper_ssl_endpoint_identification_algorithm = string(
        "https",
        "https: the certificate of a ZooKeeper server must name its host. Empty or none: it need "
        "not, so anybody with a certificate of the authorities can pose as ZooKeeper.",
        static=True,
        choices=("https", "HTTPS", "none", ""),
    )

    @property
    def zookeeper_address(self) -> "ZooKeeperAddress | None":
        """The address of ZooKeeper, if it is configured."""
        return _parse(self.zookeeper_connect) if self.zookeeper_connect else None

    @property
    def zookeeper_security(self) -> "ZooKeeperSecurity":
        """How sessions with ZooKeeper are protected."""
        from qbus.metadata.zookeeper.security import ZooKeeperSecurity  # noqa: PLC0415 - as above

        return ZooKeeperSecurity(
            self.zookeeper_digest,
            self.zookeeper_ssl_client_enable,
            self.zookeeper_ssl_truststore_location,
            self.zookeeper_ssl_keystore_location,
            self.zookeeper_ssl_keystore_password,
            self.zookeeper_ssl_endpoint_identification_algorithm.lower() == "https",
        )
