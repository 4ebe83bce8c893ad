"""Looking up the leaders of partitions that have no known leader."""

import asyncio
from contextlib import suppress

from qbus.errors import QbusError
from qbus.service.backoff import Backoff

from ..net.cluster import Cluster
from ..net.trouble import USUAL_S
from ..types import TopicPartition
from .assignment import Assignment
from .fetch_responses import FetchResponses


class LeaderSearch:
    """Refreshes the metadata of topics until all assigned partitions of them have leaders.

    It backs off, but starts again at once when another partition loses its leader. It refreshes
    known topics too: during a failover the cluster may name no leader, or one that is gone.
    """

    def __init__(
        self,
        cluster: Cluster,
        assignment: Assignment,
        responses: FetchResponses,
        changed: asyncio.Event,
    ) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._cluster = cluster
        self._assignment = assignment
        self._responses = responses
        self._changed = changed
        self._backoff = Backoff()
        self._leaderless: set[TopicPartition] = set()
        self._has_news = asyncio.Event()

    def go_on(self, leaderless: set[TopicPartition]) -> None:
        """Search for the leaders of these, all partitions without one, unless that is under way."""
        if not leaderless or leaderless - self._leaderless:
            self._backoff.succeeded()
            self._has_news.set()
        self._leaderless = leaderless
        if leaderless and not self.tasks:
            task = asyncio.create_task(self._ask({partition.topic for partition in leaderless}))
            self.tasks.add(task)
            task.add_done_callback(self._asked)

    async def _ask(self, topics: set[str]) -> None:
        self._has_news.clear()
        metadata = self._cluster.metadata
        try:
            if missing := metadata.missing(topics):
                await self._cluster.need(missing)
            else:
                await self._cluster.refresh(topics)
        except QbusError as error:
            self._responses.trouble(error)
            for topic in topics:
                self._cluster.troubles.met(f"topic {topic}", error, grace=USUAL_S)
        else:
            for topic in topics & self._assignment.topics:
                if (refused := metadata.errors.get(topic)) is not None:
                    self._responses.trouble(refused)
            self._cluster.leaderless(self._leaderless)
        self._changed.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._backoff.failed()):
                await self._has_news.wait()

    def _asked(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._changed.set()
