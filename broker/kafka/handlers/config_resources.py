"""What configuration requests are about: topics and brokers."""

from enum import IntEnum
from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.metadata.znodes import ALL_BROKERS

if TYPE_CHECKING:
    from ...broker import Broker


class ResourceType(IntEnum):
    """Kinds of things that have a configuration, by Kafka's numbers (``ConfigResource.Type``)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def resource_type(number: int) -> ResourceType:
    """The type of a resource, if its configuration can be told and changed.

    Raises:
        ApiError: INVALID_REQUEST, it cannot.
    """
    if number in {ResourceType.TOPIC, ResourceType.BROKER}:
        return ResourceType(number)
    known = number in ResourceType.__members__.values()
    name = ResourceType(number).name if known else f"type {number}"
    raise ApiError(
        ErrorCode.INVALID_REQUEST,
        f"configuration is that of topics or brokers; {name} is not supported",
    )


def broker_name(broker: "Broker", name: str) -> str:
    """Whom a broker resource stands for: this broker's id, or ALL_BROKERS.

    Raises:
        ApiError: INVALID_REQUEST, another broker, or none.
    """
    if not name:
        return ALL_BROKERS
    if name != str(broker.node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {broker.node_id}: ask broker {name!r} itself, or for all with ''",
        )
    return name
