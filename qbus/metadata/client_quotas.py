"""Client quotas in the store: whom one is for, and at which node its values lie.

Paths and JSON are those that Apache Kafka had in ZooKeeper, so that its operators' tools read them:
``/config/users/<user>``, ``/config/clients/<client id>``, ``/config/users/<user>/clients/<client
id>`` and ``/config/ips/<address>``, with ``<default>`` in place of a name for all that have no
quota of their own. A user's node also holds what the user logs in with.
"""

import math
from typing import Final, NamedTuple, Self

from qbus.metadata.errors import MalformedNode
from qbus.metadata.znodes import ConfigNode
from qbus.names import sanitise, unsanitise

DEFAULT: Final = ""
"""The name that stands for all that have no quota of their own; nobody is called so."""

CONFIG: Final = "/config"
USERS: Final = "users"
CLIENTS: Final = "clients"
IPS: Final = "ips"

_DEFAULT_NODE: Final = "<default>"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

CLIENT_KEYS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
"""The quotas that users and clients may have."""

IP_KEYS: Final = (CONNECTION_CREATION_RATE,)
"""The quotas that addresses may have."""

_KEYS: Final = frozenset((*CLIENT_KEYS, *IP_KEYS))


class QuotaEntity(NamedTuple):
    """Whom quotas are for: a user, a client id, a client id of a user, or an address.

    None: not part of it. :data:`DEFAULT`: all that have no quota of their own.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def place(self) -> str:
        """The path of its node below ``/config``, by which the feed of changes names it."""
        if self.ip is not None:
            return f"{IPS}/{_node(self.ip)}"
        parts = []
        if self.user is not None:
            parts.append(f"{USERS}/{_node(self.user)}")
        if self.client_id is not None:
            parts.append(f"{CLIENTS}/{_node(self.client_id)}")
        return "/".join(parts)

    @property
    def path(self) -> str:
        """The path of its node."""
        return f"{CONFIG}/{self.place}"

    @classmethod
    def at(cls, place: str) -> Self | None:
        """The entity whose node lies at ``place`` below ``/config``; None: no entity's does."""
        try:
            match place.split("/"):
                case ["ips", ip]:
                    return cls(ip=_name(ip))
                case ["clients", client_id]:
                    return cls(client_id=_name(client_id))
                case ["users", user]:
                    return cls(_name(user))
                case ["users", user, "clients", client_id]:
                    return cls(_name(user), _name(client_id))
        except ValueError:
            return None
        return None

    def __str__(self) -> str:
        named = (("user", self.user), ("client id", self.client_id), ("address", self.ip))
        return ", ".join(
            f"{kind} {name!r}" if name else f"default {kind}"
            for kind, name in named
            if name is not None
        )


def _node(name: str) -> str:
    return sanitise(name) if name else _DEFAULT_NODE


def _name(node: str) -> str:
    return DEFAULT if node == _DEFAULT_NODE else unsanitise(node)


def quotas_of(data: bytes) -> dict[str, float]:
    """The quotas in a node of the store, which may hold other things besides.

    Raises:
        MalformedNode: the node cannot be decoded, or a value is no number that a quota can be.
    """
    if not data:  # it is there for what lies below it
        return {}
    values = {}
    for key, text in ConfigNode.decode_secret(data).config.items():
        if key in _KEYS:
            try:
                value = float(text)
            except ValueError:
                value = -1.0
            if not 0 < value < math.inf:
                raise MalformedNode(f"{key}: no quota: {text!r}")
            values[key] = value
    return values
