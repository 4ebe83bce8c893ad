"""Which offsets an audit compares: those that the topic has now, or had when it began."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qbus.errors import QbusError

from ...blocking.admin import Admin
from ...types import EARLIEST, LATEST, TopicPartition
from ..config import Source

Extents = Mapping[TopicPartition, tuple[int, int]]
"""Of each partition the first offset, and that after the last."""


class NothingToAudit(QbusError):  # noqa: N818 - what happened
    """There is nothing that could be compared; the message says what is missing, or another."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that is asked for what it has."""

    bootstrap: str

    def topics(self, source: Source) -> list[str]:
        """The topics that a configuration chooses; raises :class:`NothingToAudit`."""
        with Admin(self.bootstrap, client_id="qbus-audit") as admin:
            there = {topic.name: topic for topic in admin.list_topics(internal=True)}
        if source.pattern:
            found = [
                name
                for name, topic in there.items()
                if re.fullmatch(source.pattern, name) and not topic.is_internal
            ]
        else:
            found = [name for name in source.topics if name in there]
            if missing := sorted(set(source.topics) - set(found)):
                raise NothingToAudit(f"there is no topic {missing[0]} at {self.bootstrap}")
        if not found:
            raise NothingToAudit(f"no topic at {self.bootstrap} matches {source.pattern!r}")
        return sorted(found)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of topics that there are."""
        with Admin(self.bootstrap, client_id="qbus-audit") as admin:
            found = admin.describe_topics(list(topics))
        return {str(name): str(topic.topic_id) for name, topic in found.items()}

    def extents(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, int]]:
        """What each of their partitions has; raises :class:`NothingToAudit`."""
        with Admin(self.bootstrap, client_id="qbus-audit") as admin:
            wanted = list(topics)
            there = {topic.name for topic in admin.list_topics(internal=True)}
            if missing := sorted(set(wanted) - there):
                raise NothingToAudit(f"there is no topic {missing[0]} at {self.bootstrap}")
            partitions = [
                TopicPartition(str(name), partition.index)
                for name, topic in admin.describe_topics(wanted).items()
                for partition in topic.partitions
            ]
            begins = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
            ends = admin.list_offsets(dict.fromkeys(partitions, LATEST))
        return {one: (begins[one].offset, ends[one].offset) for one in partitions}


def offsets_json(extents: Extents, at: int) -> str:
    """Positions as the source's options take them; ``at``: 0 for the first ones, 1 for the ends."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), extent in sorted(extents.items()):
        found.setdefault(topic, {})[str(partition)] = extent[at]
    return json.dumps(found)
