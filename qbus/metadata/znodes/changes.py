"""What the feed of changes says."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from qbus.metadata.znodes.json_data import decoding, dump


class ChangeNode(NamedTuple):
    """What a transaction changed, by name: an entry of the feed.

    ``topics``: created, deleted, or changed in their replicas. ``states``: of topics, the
    partitions whose states changed, and nothing else. ``configs``: topics whose configuration
    changed. ``brokers``: brokers, or ALL_BROKERS, whose configuration changed. ``cluster``: brokers
    came or went, or the controller changed.
    """

    topics: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()
    cluster: bool = False
    states: Mapping[str, tuple[int, ...]] = MappingProxyType({})

    def encode(self) -> bytes:
        """JSON of our own."""
        change: dict[str, Any] = {"version": 1}
        if self.topics:
            change["topics"] = self.topics
        if self.states:
            change["states"] = dict(self.states)
        if self.configs:
            change["configs"] = self.configs
        if self.brokers:
            change["brokers"] = self.brokers
        if self.cluster:
            change["cluster"] = True
        return dump(change).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote."""
        with decoding("change", data) as json_:
            states = json_.get("states", {}).items()
            return cls(
                topics=tuple(map(str, json_.get("topics", ()))),
                configs=tuple(map(str, json_.get("configs", ()))),
                brokers=tuple(map(str, json_.get("brokers", ()))),
                cluster=bool(json_.get("cluster", False)),
                states={str(topic): tuple(map(int, some)) for topic, some in states},
            )
