"""What the brokers of a cluster say of themselves and of their topics."""

from collections.abc import Mapping
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient

QUICK: Mapping[str, Any] = {
    "log_level": 2,  # that brokers are away is what happens here
    "socket.timeout.ms": 5_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 500,
}
"""What makes librdkafka notice soon what becomes of brokers."""


class View:
    """Asks whichever broker answers; one that is cut off may tell of the past."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK})

    def topics(self) -> dict[str, dict[int, Any]]:
        """The partitions of all topics with their leaders, replicas and ISRs; none on a failure."""
        try:
            found = self._admin.list_topics(timeout=30).topics
        except ck.KafkaException:
            return {}
        return {name: dict(topic.partitions) for name, topic in found.items()}

    def partitions(self, topic: str) -> dict[int, Any]:
        """Those of one topic."""
        try:
            found = self._admin.list_topics(topic, timeout=5).topics[topic]
        except ck.KafkaException:
            return {}
        return dict(found.partitions) if found.error is None else {}

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads; negative when there is none."""
        found = self.partitions(topic).get(partition)
        return -1 if found is None else int(found.leader)

    def controller(self) -> int:
        """The controller's node; negative when there is none."""
        node = self._admin.describe_cluster(request_timeout=10).result(20).controller
        return -1 if node is None else int(node.id)

    def is_whole(self, topic: str, count: int, replicas: int = 3) -> bool:
        """Whether all ``count`` partitions have a leader and all replicas in sync."""
        return _are_whole(self.partitions(topic), count, replicas)

    def are_whole(self, topics: int, count: int, replicas: int = 3) -> bool:
        """The same of so many topics, besides those that brokers keep for themselves."""
        found = {name: one for name, one in self.topics().items() if not name.startswith("_")}
        return len(found) >= topics and all(
            _are_whole(one, count, replicas) for one in found.values()
        )

    def are_led(self, topics: int, count: int, *, without: int) -> bool:
        """Whether others than ``without`` lead all partitions of so many topics."""
        found = {name: one for name, one in self.topics().items() if not name.startswith("_")}
        return len(found) >= topics and all(
            len(one) == count and all(part.leader not in {without, -1} for part in one.values())
            for one in found.values()
        )


def _are_whole(partitions: Mapping[int, Any], count: int, replicas: int) -> bool:
    return len(partitions) == count and all(
        one.error is None and one.leader >= 0 and len(one.isrs) == replicas
        for one in partitions.values()
    )
