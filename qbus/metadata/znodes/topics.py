"""Topics, their partitions, and what is configured."""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from qbus.metadata.ids import decode_id, encode_id
from qbus.metadata.znodes.json_data import decoding, dump

TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"

ALL_BROKERS = "<default>"
"""In place of a broker's id: what is configured for every broker."""

NO_LEADER = -1

_STATES = 1024  # partitions are many, and most are in the same state as others


class TopicNode(NamedTuple):
    """A topic's id, and the replicas of each partition, the preferred leader first.

    While a partition moves (KIP-455), its replicas are those that it shall have and, after them,
    those in ``removing``; ``adding`` are those of them that it did not have before.

    ``has_identity``: beside its partitions there is a node that is called by its id. A topic that
    is deleted and created anew has nodes of the same paths, and soon of the same versions; whoever
    decided something about the one must not write it to the other, so it checks that node as well.
    Kafka's own topics have none.
    """

    topic_id: bytes
    assignment: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = MappingProxyType({})
    removing: Mapping[int, tuple[int, ...]] = MappingProxyType({})
    has_identity: bool = False

    @staticmethod
    def path(topic: str) -> str:
        """Where ``topic`` is."""
        return f"{TOPICS}/{topic}"

    @staticmethod
    def identity_path(topic: str, topic_id: bytes) -> str:
        """What is there as long as ``topic`` is the one with this id."""
        return f"{TOPICS}/{topic}/id-{encode_id(topic_id)}"

    def encode(self) -> bytes:
        """Kafka's JSON, version 3; what Kafka does not know of, beside it when there is any."""
        topic: dict[str, Any] = {
            "version": 3,
            "topic_id": encode_id(self.topic_id),
            "partitions": _by_text(self.assignment),
            "adding_replicas": _by_text(self.adding),
            "removing_replicas": _by_text(self.removing),
        }
        if self.has_identity:
            topic["identity"] = True
        return dump(topic).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote; partitions are numbered from 0 without a gap."""
        with decoding("topic", data) as json_:
            assignment = _by_index(json_["partitions"])
            if sorted(assignment) != list(range(len(assignment))):
                raise ValueError
            return cls(
                decode_id(json_["topic_id"]),
                assignment,
                _by_index(json_.get("adding_replicas", {})),
                _by_index(json_.get("removing_replicas", {})),
                bool(json_.get("identity", False)),
            )


def _by_text(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {str(index): some for index, some in replicas.items()}


def _by_index(json_: dict[str, list[int]]) -> dict[int, tuple[int, ...]]:
    return {int(index): tuple(map(int, some)) for index, some in json_.items()}


class PartitionStateNode(NamedTuple):
    """Who leads a partition since when, and which replicas hold all that was acknowledged.

    ``isr`` are in sync; ``elr`` are not any more, but nothing was acknowledged since they were
    (KIP-966, eligible leader replicas). ``last_in_sync`` is the one that was in sync last, once
    nobody is left of either.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    elr: tuple[int, ...] = ()
    last_in_sync: int = NO_LEADER

    @staticmethod
    def path(topic: str, partition: int) -> str:
        """Where the state of a partition is."""
        return f"{TopicNode.path(topic)}/partitions/{partition}/state"

    @lru_cache(maxsize=_STATES)  # noqa: B019 - a few hundred small values, kept on purpose
    def encode(self) -> bytes:
        """Kafka's JSON, version 1; what Kafka does not know of, beside it when there is any."""
        state = {
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "version": 1,
            "leader_epoch": self.leader_epoch,
            "isr": self.isr,
        }
        if self.elr:
            state["elr"] = self.elr
        if self.last_in_sync != NO_LEADER:
            state["last_in_sync"] = self.last_in_sync
        return dump(state).encode()

    @classmethod
    @lru_cache(maxsize=_STATES)
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote."""
        with decoding("partition state", data) as json_:
            return cls(
                leader=int(json_["leader"]),
                leader_epoch=int(json_["leader_epoch"]),
                isr=tuple(map(int, json_["isr"])),
                controller_epoch=int(json_["controller_epoch"]),
                elr=tuple(map(int, json_.get("elr", ()))),
                last_in_sync=int(json_.get("last_in_sync", NO_LEADER)),
            )


class ConfigNode(NamedTuple):
    """Dynamic configuration of a topic, of a broker, or of all brokers."""

    config: Mapping[str, str]

    @staticmethod
    def topic_path(topic: str) -> str:
        """Where the configuration of ``topic`` is."""
        return f"{TOPIC_CONFIGS}/{topic}"

    @staticmethod
    def broker_path(broker: str) -> str:
        """Where the configuration of the broker with this id, or of ALL_BROKERS, is."""
        return f"{BROKER_CONFIGS}/{broker}"

    def encode(self) -> bytes:
        """Kafka's JSON, version 1."""
        return dump({"version": 1, "config": dict(self.config)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote."""
        with decoding("configuration", data) as json_:
            return cls({str(name): str(value) for name, value in json_["config"].items()})
