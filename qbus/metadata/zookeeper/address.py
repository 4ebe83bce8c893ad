"""Addresses of ZooKeeper ensembles: ``host:port,host:port/chroot``."""

import re
from typing import Final, NamedTuple, Self

from qbus.metadata import paths

DEFAULT_PORT = 2181

_SCHEME = "zk://"
_FORM = "host:port,.../chroot"
_ANOTHER_SERVER: Final = re.compile(r",[^,/]+:[0-9]+(?=[/,]|$)")


class ZooKeeperAddress(NamedTuple):
    """The servers of an ensemble, and the chroot: the node below which everything lies."""

    servers: tuple[tuple[str, int], ...]
    chroot: str = paths.ROOT

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``host[:port],.../chroot``, with or without a leading ``zk://``.

        Raises:
            ValueError: the text has another form; the message has the expected one.
        """
        text = text.strip().removeprefix(_SCHEME)
        scheme, separator, _ = text.partition("://")
        if separator:
            raise ValueError(f"{_FORM}, without {scheme[:20]}://")
        servers, slash, chroot = text.partition("/")
        chroot = chroot.rstrip("/")
        if _ANOTHER_SERVER.search(chroot):
            raise ValueError(f"{_FORM}, with the chroot once, after the last server")
        if slash and chroot:
            try:
                paths.check(f"/{chroot}")
            except ValueError as error:
                raise ValueError(f"{_FORM}, not the chroot /{chroot}") from error
        return cls(tuple(map(_server, servers.split(","))), f"/{chroot}")

    @property
    def hosts(self) -> str:
        """The servers in kazoo's form."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers
        )

    def __str__(self) -> str:
        return self.hosts + ("" if self.chroot == paths.ROOT else self.chroot)


def _server(text: str) -> tuple[str, int]:
    host, port = text.strip(), str(DEFAULT_PORT)
    if ":" in host.rpartition("]")[2]:
        host, _, port = host.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{_FORM}, with an IPv6 address in brackets")
    if not _is_host(host):
        raise ValueError(f"{_FORM}, with a host name or an address")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise ValueError(f"{_FORM}, with a port from 1 to 65535")
    return host, int(port)


def _is_host(text: str) -> bool:
    if not text or any(character.isspace() or character in "[]@?#" for character in text):
        return False
    try:
        text.encode("idna")  # as it is looked up: no label is empty or too long
    except UnicodeError:
        return False
    return True
