"""Which broker coordinates a group, by rendezvous hashing: every broker computes the same answer.

Each live broker that is not stopping has a weight for a group, and the broker with the largest one
coordinates it; of equal weights, the one with the smaller id. The weight is a number of 64 bits::

    weight(broker, group) = mix(fnv1a(the group's id in UTF-8) + mix(the broker's id))

with FNV-1a of 64 bits, the finalizer of SplitMix64 as ``mix``, and sums modulo 2**64. When a broker
leaves, only its groups move, evenly to all others; when one joins, it takes an even share of each.
The list of live brokers is all that is needed to find a coordinator.

Where offsets are in the log, or on the way back from there, a group belongs to the leader of its
partition of ``__consumer_offsets`` instead (:mod:`.storage`).
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from qbus.errors import ErrorCode

from ..metadata.image import BrokerInfo
from .moves import OffsetHomes
from .offset_log import OffsetLog

_MASK: Final = 2**64 - 1
_FNV_START: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3


def coordinator_of(group_id: str, brokers: Iterable[int]) -> int | None:
    """Return the id of the broker that coordinates a group, or None without ``brokers``."""
    hashed = _fnv1a(group_id.encode())
    return max(brokers, key=lambda broker: (_mix(hashed + _mix(broker)), -broker), default=None)


def _fnv1a(data: bytes) -> int:
    value = _FNV_START
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & _MASK
    return value


def _mix(value: int) -> int:
    value &= _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


class LiveBrokers(Protocol):
    """The live brokers."""

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """The live brokers by id."""


class Ownership:
    """Which broker coordinates which group, by this broker's view of the cluster.

    ``homes`` is set where offsets may be in the log.
    """

    def __init__(self, node_id: int, cluster: LiveBrokers) -> None:
        """``node_id``: this broker."""
        self._node_id = node_id
        self._cluster = cluster
        self.homes: OffsetHomes | None = None

    @property
    def _log(self) -> OffsetLog | None:
        """The log whose leaders coordinate groups, if they do."""
        homes = self.homes
        return homes.log if homes is not None and homes.storage.is_by_log else None

    @property
    def candidates(self) -> frozenset[int]:
        """The brokers that can coordinate groups."""
        brokers = self._cluster.brokers.values()
        return frozenset(broker.id for broker in brokers if not broker.is_stopping)

    def coordinator(self, group_id: str) -> BrokerInfo | None:
        """Return the broker that coordinates a group, or None while there is none."""
        if (log := self._log) is not None:
            return log.known_coordinator(group_id)
        broker = coordinator_of(group_id, self.candidates)
        return None if broker is None else self._cluster.brokers[broker]

    def is_ours(self, group_id: str) -> bool:
        """Whether this broker coordinates a group."""
        return self.refusal(group_id) is ErrorCode.NONE

    def refusal(self, group_id: str) -> ErrorCode:
        """Why this broker does not coordinate a group now; NONE: it does."""
        if (log := self._log) is not None:
            return log.refusal(group_id)
        is_ours = coordinator_of(group_id, self.candidates) == self._node_id
        return ErrorCode.NONE if is_ours else ErrorCode.NOT_COORDINATOR

    async def find(self, group_id: str) -> BrokerInfo | None:
        """As :meth:`coordinator`; the log is made when it does not exist.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE, it cannot be made.
        """
        if (log := self._log) is not None:
            return await log.coordinator(group_id)
        return self.coordinator(group_id)
