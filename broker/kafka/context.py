"""Who asks: what a handler may know of a request besides its body."""

from dataclasses import dataclass, field

from qbus.config import Address


@dataclass(slots=True, eq=False)
class Peer:
    """The client at the other end of one connection.

    ``software`` is what ApiVersions v3+ told of it (KIP-511): ``name/version``.
    """

    connection_id: int
    host: str
    listener: Address
    software: str = field(default="unknown")


class RequestContext:
    """One request's header and where it came from."""

    __slots__ = ("api_key", "api_version", "client_id", "peer")

    def __init__(self, api_key: int, api_version: int, client_id: str | None, peer: Peer) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        self.peer = peer

    @property
    def client_host(self) -> str:
        """The client's address, without the port."""
        return self.peer.host

    @property
    def client_software(self) -> str:
        """The client library and its version, as it calls itself."""
        return self.peer.software
