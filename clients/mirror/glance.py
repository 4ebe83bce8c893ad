"""Looks at a source's topics: often, for new ones are to be copied at once, and at little cost."""

import time
from collections.abc import Container, Mapping
from uuid import UUID

from qbus.errors import QbusError

from ..net.cluster import Cluster
from .routes import Topic

GLANCE_S = 0.5
"""Seconds between two looks."""
_PAUSES_PER_LOOK = 4
"""How often as long as a look lasted the next one is put off."""


class Glance:
    """Whether the topics of a link's source have changed since they were compared last."""

    def __init__(self, source: Cluster, selection: Container[str]) -> None:
        """``selection``: the names of the topics that are mirrored."""
        self._source = source
        self._selection = selection
        self._compared: dict[str, tuple[UUID, int]] = {}
        self._look_at = 0.0

    def compared(self, topics: Mapping[str, Topic]) -> None:
        """``topics`` of the source, by name, were compared with those of the target."""
        self._compared = {name: (one.topic_id, one.partitions) for name, one in topics.items()}

    async def sees_news(self) -> bool:
        """Whether topics were made, deleted or enlarged since; it asks for metadata alone.

        Not when it was asked a moment ago: a cluster whose answers take long is looked at less
        often. Errors are no news: the next comparison tells of them.
        """
        began = time.monotonic()
        if began < self._look_at:
            return False
        try:
            await self._source.refresh(None)
        except QbusError:
            return False
        took = time.monotonic() - began
        self._look_at = began + took + max(GLANCE_S, _PAUSES_PER_LOOK * took)
        now = {
            name: (topic.topic_id, len(topic.partitions))
            for name, topic in self._source.metadata.topics.items()
            if not topic.is_internal and name in self._selection
        }
        return now != self._compared
