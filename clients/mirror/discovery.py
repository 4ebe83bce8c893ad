"""Discovery: what a link has to mirror, by the topics of both clusters."""

import asyncio
import logging
import time
from collections.abc import Mapping
from uuid import UUID

from qbus.errors import QbusError

from ..net.cluster import Cluster
from . import glance
from .config import LinkConfig
from .glance import Glance
from .routes import Obstacle, Topic, TopicRoute, plan
from .topics import TargetTopics, read_topics

_log = logging.getLogger(__name__)


class Discovery:
    """The topics of a link, as of the last discovery.

    ``routes`` are the topics that this link writes, by their names at the target. ``error`` says
    why the last discovery failed, if it did.
    """

    def __init__(
        self, config: LinkConfig, source: Cluster, target: Cluster, topics: TargetTopics
    ) -> None:
        self.routes: Mapping[str, TopicRoute] = {}
        self.obstacles: tuple[Obstacle, ...] = ()
        self.error: str | None = None
        self._config = config
        self._source = source
        self._target = target
        self._topics = topics
        self._glance = Glance(source, config.selection)
        self._originals: Mapping[str, Topic] = {}
        self._existing: Mapping[str, Topic] = {}

    def source_id(self, topic: str) -> UUID | None:
        """Return the id of a topic of the source; it changes if the topic is created again."""
        original = self._originals.get(topic)
        return None if original is None else original.topic_id

    def target_id(self, topic: str) -> UUID | None:
        """Return the id of a topic of the target."""
        existing = self._existing.get(topic)
        return None if existing is None else existing.topic_id

    async def discover(self) -> bool:
        """Discover again; return whether nothing had to be changed. Errors are kept, not raised."""
        try:
            return await self._discover()
        except QbusError as error:
            if self.error is None:
                _log.warning("%s: topics cannot be discovered: %s", self._config.name, error)
            self.error = str(error)
            return False

    async def until_news(self, seconds: float, asked_for: asyncio.Event) -> None:
        """Wait for so long, but no longer once the source's topics have changed.

        Neither once it is ``asked_for``.
        """
        ends_at = time.monotonic() + seconds
        while (left := ends_at - time.monotonic()) > 0:
            await asyncio.sleep(min(glance.GLANCE_S, left))
            if asked_for.is_set() or await self._glance.sees_news():
                return

    async def _discover(self) -> bool:
        source = await read_topics(self._source, self._config.selection.__contains__)
        existing = await read_topics(self._target, _may_be_mirror)
        found = plan(self._config, source, existing)
        troubles = await self._topics.apply(found, source, existing)
        obstacles = (*found.obstacles, *troubles)
        for obstacle in set(obstacles) - set(self.obstacles):
            _log.error("%s: %s", self._config.name, obstacle.reason)
        self._originals, self._existing = source, existing
        self._glance.compared(source)
        self.routes = {route.target_topic: route for route in found.mirror}
        self.obstacles = obstacles
        self.error = None
        return not (found.create or found.take_over)


def _may_be_mirror(name: str) -> bool:
    return "." in name
