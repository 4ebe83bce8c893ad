"""The metadata of a cluster, requested from each broker directly.

A client library chooses the broker, perhaps one that is cut off and has stale metadata.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from qbus.wire import API, ApiKey
from qbus.wire.messages.metadata import MetadataRequestTopic

from .raw_client import RawClient
from .server_process import ServerProcess

_VERSION = 8
_WITHIN = 5.0

Topics = dict[str, dict[int, Any]]
"""Partitions with leader_id, replica_nodes and isr_nodes, by topic and index."""


class View:
    """Requests metadata from the live brokers; skips those that do not answer in time."""

    def __init__(self, brokers: Mapping[int, ServerProcess]) -> None:
        self._brokers = brokers

    def topics(self, names: Iterable[str] | None = None, without: int | None = None) -> Topics:
        """The topics as a broker other than ``without`` describes them; empty if none answers."""
        answer = self._first(names, without)
        return {} if answer is None else _topics(answer)

    def partitions(self, topic: str, without: int | None = None) -> dict[int, Any]:
        """The partitions of a topic."""
        return self.topics([topic], without).get(topic, {})

    def leader(self, topic: str, partition: int = 0, without: int | None = None) -> int:
        """The leader of a partition; negative if there is none."""
        found = self.partitions(topic, without).get(partition)
        return -1 if found is None else int(found.leader_id)

    def epochs(self, topic: str) -> list[dict[int, tuple[int, int]]]:
        """The leader of each partition of a topic and its epoch, as each broker tells."""
        answers = [_topics(answer).get(topic, {}) for answer in self._answers([topic], None)]
        return [
            {index: (one.leader_id, one.leader_epoch) for index, one in found.items()}
            for found in answers
        ]

    def controller(self, without: int | None = None) -> int:
        """The controller; negative if there is none."""
        answer = self._first([], without)
        return -1 if answer is None else int(answer.controller_id)

    def are_all_there(self) -> bool:
        """Whether every broker knows all brokers."""
        answers = list(self._answers([], None))
        return len(answers) == len(self._brokers) and all(
            {one.node_id for one in answer.brokers} == set(self._brokers) for answer in answers
        )

    def are_whole(self, names: Collection[str], partitions: int) -> bool:
        """Whether every broker sees these topics with leaders and all replicas in sync."""
        answers = list(self._answers(names, None))
        return len(answers) == len(self._brokers) and all(
            found.keys() == set(names) and all(_is_whole(one, partitions) for one in found.values())
            for found in map(_topics, answers)
        )

    def are_led(self, names: Collection[str], partitions: int, without: int) -> bool:
        """Whether brokers other than ``without`` lead all partitions of these topics."""
        found = self.topics(names, without)
        return found.keys() == set(names) and all(
            len(one) == partitions
            and all(part.leader_id not in {without, -1} for part in one.values())
            for one in found.values()
        )

    def _first(self, names: Iterable[str] | None, without: int | None) -> Any:
        return next(self._answers(names, without), None)

    def _answers(self, names: Iterable[str] | None, without: int | None) -> Iterator[Any]:
        for node, broker in self._brokers.items():
            if node != without and broker.alive:
                with suppress(OSError, AssertionError):
                    yield _ask(broker, names)


def _ask(broker: ServerProcess, names: Iterable[str] | None) -> Any:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = API[ApiKey.METADATA].request(topics=topics, allow_auto_topic_creation=False)
    with RawClient(broker.port, _WITHIN, host=broker.host) as client:
        return client.ask(ApiKey.METADATA, _VERSION, request)


def _topics(answer: Any) -> Topics:
    return {
        topic.name: {one.partition_index: one for one in topic.partitions}
        for topic in answer.topics
        if not topic.error_code
    }


def _is_whole(partitions: Mapping[int, Any], count: int) -> bool:
    return len(partitions) == count and all(
        not one.error_code
        and one.leader_id >= 0
        and len(one.isr_nodes) == len(one.replica_nodes) > 0
        for one in partitions.values()
    )
