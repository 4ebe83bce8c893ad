"""The topics that the members' patterns match, found in a thread and shared by all groups.

A group is a state machine that does not wait, so a pattern's topics are found before the group
handles the heartbeat that brings it, and before a group is restored. Topics that come later are
matched in the background, each with each pattern once.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final
from weakref import WeakValueDictionary

from qbus.errors import ApiError

from ..regular_expression import find_matching

_log = logging.getLogger(__name__)

NO_TOPICS: Final[frozenset[str]] = frozenset()


class TopicPattern:
    """A pattern, and the names of the topics that match it.

    seen: the names of all topics that were compared with it.
    """

    __slots__ = ("__weakref__", "seen", "text", "topics")

    def __init__(self, text: str, topics: frozenset[str], seen: frozenset[str]) -> None:
        self.text = text
        self.topics = topics
        self.seen = seen


class TopicPatterns:
    """The patterns in use on a broker: those that a group, or a request on its way, refers to."""

    def __init__(self, names: Callable[[], Collection[str]]) -> None:
        """``names``: returns the names of the topics that exist now."""
        self._names = names
        self._known: WeakValueDictionary[str, TopicPattern] = WeakValueDictionary()
        self._resolving: dict[str, asyncio.Task[TopicPattern]] = {}
        self._following: asyncio.Task[None] | None = None
        self._is_outdated = False

    def find(self, text: str) -> TopicPattern | None:
        """Return a pattern that was resolved and is still referred to."""
        return self._known.get(text)

    async def resolve(self, text: str) -> TopicPattern:
        """Return a pattern with its topics; requests for the same one wait for one search.

        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION.
        """
        known = self._known.get(text)
        if known is not None:
            return known
        task = self._resolving.get(text)
        if task is None:
            task = asyncio.create_task(self._resolve(text), name="find the topics of a pattern")
            self._resolving[text] = task
            task.add_done_callback(lambda done: self._resolved(text, done))
        return await asyncio.shield(task)

    async def _resolve(self, text: str) -> TopicPattern:
        topics, seen = NO_TOPICS, None
        while seen is None or not seen.issuperset(self._names()):
            names = frozenset(self._names())
            topics |= await find_matching(text, names - (seen or NO_TOPICS))
            seen = names
        pattern = self._known[text] = TopicPattern(text, topics, seen)
        return pattern

    def _resolved(self, text: str, task: asyncio.Task[TopicPattern]) -> None:
        del self._resolving[text]
        if not task.cancelled():
            task.exception()  # those who asked may be gone

    def follow(self, changed: Callable[[], None]) -> None:
        """Compare new topics with the patterns; ``changed`` is called if one matches any."""
        self._is_outdated = True
        if self._known and self._following is None:
            self._following = asyncio.create_task(
                self._follow(changed), name="match new topics with patterns"
            )

    def close(self) -> None:
        """Stop comparing new topics."""
        if self._following is not None:
            self._following.cancel()

    async def _follow(self, changed: Callable[[], None]) -> None:
        try:
            while self._is_outdated:
                self._is_outdated = False
                if await self._refresh():
                    changed()
        finally:
            self._following = None

    async def _refresh(self) -> bool:
        """Compare the topics that exist now with every pattern; return whether any has others."""
        names = frozenset(self._names())
        new: dict[frozenset[str], frozenset[str]] = {}
        has_changed = False
        for pattern in list(self._known.values()):
            if pattern.seen not in new:
                new[pattern.seen] = names - pattern.seen
            found = await self._matching(pattern.text, new[pattern.seen])
            topics = (pattern.topics & names) | found
            pattern.seen = names
            if topics != pattern.topics:
                pattern.topics = topics
                has_changed = True
        return has_changed

    async def _matching(self, text: str, names: frozenset[str]) -> frozenset[str]:
        try:
            return await find_matching(text, names) if names else NO_TOPICS
        except ApiError as error:  # it was compiled before
            _log.error("new topics are not compared with the pattern %.200r: %s", text, error)
            return NO_TOPICS
