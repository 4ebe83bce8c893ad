"""Finding out who leads partitions of which nobody known does."""

import asyncio
from collections.abc import Iterable

from qbus.errors import QbusError

from ..cluster import Cluster
from ..retry import backoff
from .answers import Answers


class LeaderSearch:
    """Asks about topics until all their partitions that are read have leaders, ever less often.

    Also about those that are known: while a broker's partitions go over to others, the cluster
    tells of leaders that are gone, or of none.
    """

    def __init__(self, cluster: Cluster, answers: Answers, changed: asyncio.Event) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._cluster = cluster
        self._answers = answers
        self._changed = changed
        self._delays = backoff()

    def go_on(self, leaderless: Iterable[str]) -> None:
        """Ask about these topics, unless that is being done; none: the search is over."""
        topics = list(leaderless)
        if not topics:
            self._delays = backoff()
        elif not self.tasks:
            task = asyncio.create_task(self._ask(topics))
            self.tasks.add(task)
            task.add_done_callback(self._asked)

    async def _ask(self, topics: list[str]) -> None:
        metadata = self._cluster.metadata
        try:
            if missing := metadata.missing(topics):
                await self._cluster.need(missing)
            else:
                await self._cluster.refresh(topics)
        except QbusError as error:
            self._answers.trouble(error)
        else:
            for topic in topics:
                if (refused := metadata.errors.get(topic)) is not None:
                    self._answers.trouble(refused)
        self._changed.set()
        await asyncio.sleep(next(self._delays))

    def _asked(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._changed.set()
