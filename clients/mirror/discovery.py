"""Looking at both clusters for what a link has to mirror, and seeing to it that it can."""

import logging
from collections.abc import Mapping
from uuid import UUID

from qbus.errors import QbusError

from ..net.cluster import Cluster
from .config import LinkConfig
from .routes import Obstacle, Topic, Way, plan
from .topics import TargetTopics, read_topics

_log = logging.getLogger(__name__)


class Discovery:
    """What was found at the last look.

    ``ways`` are the topics that this link writes, by their names at the target; ``error`` is why
    they could not be looked at, while that is so.
    """

    def __init__(
        self, config: LinkConfig, source: Cluster, target: Cluster, topics: TargetTopics
    ) -> None:
        self.ways: Mapping[str, Way] = {}
        self.obstacles: tuple[Obstacle, ...] = ()
        self.error: str | None = None
        self._config = config
        self._source = source
        self._target = target
        self._topics = topics
        self._originals: Mapping[str, Topic] = {}
        self._existing: Mapping[str, Topic] = {}

    def source_id(self, topic: str) -> UUID | None:
        """The id of a topic of the source: another one once it was created anew."""
        original = self._originals.get(topic)
        return None if original is None else original.topic_id

    def target_id(self, topic: str) -> UUID | None:
        """That of a topic of the target."""
        existing = self._existing.get(topic)
        return None if existing is None else existing.topic_id

    async def look(self) -> bool:
        """Look again; whether nothing had to be changed. Errors are kept, not raised."""
        try:
            return await self._look()
        except QbusError as error:
            if self.error is None:
                _log.warning("%s: topics cannot be looked at: %s", self._config.name, error)
            self.error = str(error)
            return False

    async def _look(self) -> bool:
        source = await read_topics(self._source, self._config.selection.__contains__)
        existing = await read_topics(self._target, _may_be_mirror)
        found = plan(self._config, source, existing)
        troubles = await self._topics.apply(found, source, existing)
        obstacles = (*found.obstacles, *troubles)
        for obstacle in set(obstacles) - set(self.obstacles):
            _log.error("%s: %s", self._config.name, obstacle.reason)
        self._originals, self._existing = source, existing
        self.ways = {way.target_topic: way for way in found.mirror}
        self.obstacles = obstacles
        self.error = None
        return not (found.create or found.take_over)


def _may_be_mirror(name: str) -> bool:
    return "." in name
