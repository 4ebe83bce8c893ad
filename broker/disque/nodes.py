"""The nodes of the cluster, as Disque's clients see them: brokers that serve RESP."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from qbus.config import Address
from qbus.jobs import node_name

from ..metadata.image import BrokerInfo

PRIORITY: Final = 1
LEAVING_PRIORITY: Final = 100


class TlsAddress(Address):
    """An address where TLS is spoken."""

    __slots__ = ()


class Node(NamedTuple):
    """A node: broker ``id``, its 40 digits, its address, and whether it is about to leave.

    ``tls_address``: where it speaks TLS, if it does; ``address`` is the same, if that is all.
    """

    id: int
    name: str
    address: Address
    is_leaving: bool = False
    is_myself: bool = False
    tls_address: Address | None = None

    @property
    def for_nodes(self) -> Address:
        """Where other nodes reach it: with TLS if they can."""
        return self.address if self.tls_address is None else TlsAddress(*self.tls_address)

    def for_client(self, *, is_encrypted: bool) -> Address:
        """Where a client reaches it whose connection to this node is encrypted, or is not."""
        return self.tls_address if is_encrypted and self.tls_address else self.address

    @property
    def priority(self) -> int:
        """Which nodes clients should prefer: those with the lowest."""
        return LEAVING_PRIORITY if self.is_leaving else PRIORITY


class Metadata(Protocol):
    """What is known of the live brokers."""

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """The live brokers, by id."""


class Nodes:
    """The live nodes. ``leaving``: the names of those that said so, see CLUSTER LEAVING."""

    def __init__(
        self,
        cluster_id: str,
        node_id: int,
        address: Address,
        metadata: Metadata,
        tls_address: Address | None = None,
    ) -> None:
        """``address``: where clients reach this node; ``tls_address``: where they do with TLS."""
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._address = address
        self._tls_address = tls_address
        self._metadata = metadata
        self._names: dict[int, str] = {}
        self.name = self.name_of(node_id)
        self.leaving: set[str] = set()
        self._counted: Mapping[int, BrokerInfo] | None = None
        self._most_replicas = 1

    @property
    def is_leaving(self) -> bool:
        """Whether this node is about to leave."""
        return self.name in self.leaving

    def name_of(self, broker: int) -> str:
        """The 40 digits of a broker, live or not."""
        name = self._names.get(broker)
        if name is None:
            name = self._names[broker] = node_name(self._cluster_id, broker)
        return name

    def all(self) -> list[Node]:
        """Every live node, this one first."""
        return [self._myself(), *self.others()]

    def others(self) -> Iterable[Node]:
        """Every other live node."""
        for broker in self._metadata.brokers.values():
            address = broker.disque or broker.disque_tls
            if broker.id != self._node_id and address is not None:
                yield self._node(broker.id, address, broker.disque_tls)

    def find(self, broker: int) -> Node | None:
        """A live node by its broker's id."""
        if broker == self._node_id:
            return self._myself()
        known = self._metadata.brokers.get(broker)
        address = None if known is None else known.disque or known.disque_tls
        if known is None or address is None:
            return None
        return self._node(broker, address, known.disque_tls)

    @property
    def size(self) -> int:
        """How many brokers live, whether they serve RESP or not: all hold replicas."""
        return max(len(self._metadata.brokers), 1)

    @property
    def most_replicas(self) -> int:
        """On how many nodes a job can be: of those on one machine, on one."""
        brokers = self._metadata.brokers
        if brokers is not self._counted:
            machines = {broker.machine or broker.id for broker in brokers.values()}
            self._counted, self._most_replicas = brokers, max(len(machines), 1)
        return self._most_replicas

    @property
    def usual_replicas(self) -> int:
        """On how many nodes a job is to be if nobody says."""
        return min(3, self.most_replicas)

    def _myself(self) -> Node:
        return self._node(self._node_id, self._address, self._tls_address)._replace(is_myself=True)

    def _node(self, broker: int, address: Address, tls_address: Address | None) -> Node:
        name = self.name_of(broker)
        known = self._metadata.brokers.get(broker)
        stops = known is not None and known.is_stopping
        is_leaving = stops or name in self.leaving
        return Node(broker, name, address, is_leaving, tls_address=tls_address)
