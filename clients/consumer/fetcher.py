"""Fetches for all assigned partitions: one long poll at a time to each broker."""

import asyncio
import time
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from qbus.errors import ApiError, QbusError
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

from ..errors import check
from ..net.cluster import Cluster
from ..net.pool import ConnectionGroup
from ..types import NO_ID, TopicPartition, by_topic
from .assignment import Assignment, PartitionState
from .fetch_responses import FetchResponses
from .leader_search import LeaderSearch
from .options import ConsumerOptions
from .recreation import RecreatedTopics
from .truncation import TruncationCheck

LEAST = 4 * 1024 * 1024
"""Smallest window in bytes: little enough to be read from the processor's cache."""
_LONG = 0.02
"""Seconds that an answer of :data:`LEAST` takes only over a long or slow link."""


class FetchWindow:
    """The most bytes to ask one broker for: small for the cache, large over a long link.

    It doubles when the reader waited for a full answer that took long; it shrinks bit by bit while
    the reader does not wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.nbytes = min(LEAST, most)

    def answered(self, nbytes: int, seconds: float, *, is_awaited: bool) -> None:
        """Count an answer of ``nbytes`` that took ``seconds``; ``is_awaited``: the reader
        waited.
        """
        if not is_awaited:
            self.nbytes = max(self.nbytes - self.nbytes // 8, min(LEAST, self._most))
        elif seconds >= _LONG and nbytes >= self.nbytes // 2:
            self.nbytes = min(2 * nbytes, self._most)


_RETRY_DELAY = 0.1
_READ_COMMITTED = 1
_LITTLE = 64 * 1024
"""Answers up to this many bytes reach a waiting reader before the next request is sent."""
_SOON = 0.001
"""Seconds after which the next request is sent then, unless the reader is back before."""
_ANSWERS_AHEAD = 2
"""Answers that may wait, for each broker and partition: one is read, one waits, one is in
flight.
"""


class _Ask(NamedTuple):
    """What is asked of one broker: offsets by partition, the most bytes, and the topics' ids."""

    offsets: dict[TopicPartition, int]
    max_bytes: int
    ids: dict[str, UUID]


class _Held(NamedTuple):
    """Bytes of one broker that wait, and how many of them can be read now."""

    nbytes: int = 0
    ready: int = 0

    def and_of(self, state: PartitionState) -> "_Held":
        more = state.held_bytes
        return _Held(self.nbytes + more, self.ready if state.is_paused else self.ready + more)


class Fetcher:
    """Keeps the assigned partitions filled, ahead of the reader.

    The next request follows each answer at once, so that one is in flight while another is read,
    unless two wait to be read. A small answer that a reader waits for is handed over before,
    because the reader may be another thread and Python runs one at a time.

    What waits and what was asked for is at most ``prefetch_bytes``, but for one batch from each
    broker: brokers answer with at least one batch, however large. ``is_awaited``: the reader has
    nothing left to read.
    """

    def __init__(
        self,
        cluster: Cluster,
        assignment: Assignment,
        options: ConsumerOptions,
        changed: asyncio.Event,
    ) -> None:
        self.responses = FetchResponses(cluster, assignment, options)
        self.is_awaited = False
        self._cluster = cluster
        self._assignment = assignment
        self._options = options
        self._changed = changed
        self._check = TruncationCheck(cluster, assignment, self.responses, changed)
        self._search = LeaderSearch(cluster, assignment, self.responses, changed)
        self.recreated = RecreatedTopics(cluster, options)
        self._fetches: dict[int, asyncio.Task[None]] = {}
        self._asked: dict[int, _Ask] = {}
        self._windows: dict[int, FetchWindow] = {}
        self._soon: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def close(self) -> None:
        """Cancel the requests in flight."""
        self._is_closed = True
        tasks = [*self._fetches.values(), *self._check.tasks, *self._search.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def start(self) -> None:
        """Ask each idle broker for its partitions that have room.

        Each broker has an equal share of ``prefetch_bytes``, so that none waits for another's
        records to be read.
        """
        if self._is_closed:
            return
        held: dict[int, _Held] = {}
        wanted: dict[int, dict[TopicPartition, int]] = {}
        leaderless: set[TopicPartition] = set()
        for partition, state in self._assignment.states.items():
            broker = self._broker_for(partition, state)
            if broker is None:
                leaderless.add(partition)
                continue
            self.recreated.check(partition, state)
            held[broker] = held.get(broker, _Held()).and_of(state)
            offset = state.fetch_offset
            if broker in self._fetches or offset is None or not self._has_room(state, offset):
                continue
            if self._check.is_sound(partition, state):
                wanted.setdefault(broker, {})[partition] = offset
        self._search.go_on(leaderless)
        share = self._options.prefetch_bytes // max(len(held), 1)
        if any(held[broker].nbytes >= share for broker in wanted) and self._forget_paused():
            self.start()
            return
        for broker, offsets in wanted.items():
            window = self._window(broker).nbytes
            room = min(share - held[broker].nbytes, self._room(), window)
            if room > 0 and held[broker].ready < _ANSWERS_AHEAD * window:
                self._ask(broker, _Ask(offsets, room, self._ids(offsets)))

    def start_soon(self) -> None:
        """Start after a moment: the reader gets what came first."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(_SOON, self._start_now)

    def _start_now(self) -> None:
        self._soon = None
        self.start()

    def _window(self, broker: int) -> FetchWindow:
        return self._windows.setdefault(broker, FetchWindow(self._options.fetch_max_bytes))

    def _ask(self, broker: int, ask: _Ask) -> None:
        self._asked[broker] = ask
        self._fetches[broker] = asyncio.create_task(self._fetch(broker, ask))

    def _ids(self, partitions: Iterable[TopicPartition]) -> dict[str, UUID]:
        states = self._assignment.states
        return {key.topic: states[key].topic_id or NO_ID for key in partitions}

    def _has_room(self, state: PartitionState, offset: int) -> bool:
        if state.is_stopped or state.is_paused:
            return False
        if state.stop_at is not None and offset >= state.stop_at:
            return False
        return state.held_bytes < _ANSWERS_AHEAD * self._options.partition_max_bytes

    def _room(self) -> int:
        held = sum(state.held_bytes for state in self._assignment.states.values())
        coming = sum(ask.max_bytes for ask in self._asked.values())
        return self._options.prefetch_bytes - held - coming

    def _forget_paused(self) -> bool:
        """Drop the records of paused partitions, which can be fetched again, to make room."""
        paused = [s for s in self._assignment.states.values() if s.is_paused and s.fetched]
        for state in paused:
            state.fetched.clear()
        return bool(paused)

    def _broker_for(self, partition: TopicPartition, state: PartitionState) -> int | None:
        """Return the leader, or the nearby replica that it named; None: neither is known."""
        try:
            leader = self._cluster.metadata.leader(*partition)
        except ApiError:
            return None
        if state.nearby in self._cluster.metadata.nodes and time.monotonic() < state.nearby_until:
            return state.nearby
        return leader

    async def _fetch(self, broker: int, ask: _Ask) -> None:
        began = time.monotonic()
        is_reader_first = False
        try:
            response: FetchResponse = await self._cluster.ask(
                broker,
                ApiKey.FETCH,
                self._request(ask),
                connection_group=ConnectionGroup.FETCH,
                timeout=self._cluster.request_timeout + self._options.fetch_max_wait,
                by_id=NO_ID not in ask.ids.values(),
            )
            check(response.error_code, of="fetch")
            seconds = time.monotonic() - began
            size = _size(response)
            is_reader_first = self.is_awaited and 0 < size < min(_LITTLE, ask.max_bytes // 2)
            self._window(broker).answered(size, seconds, is_awaited=self.is_awaited)
            self.is_awaited = False
            has_failed = self.responses.arrived(broker, ask.offsets, ask.ids, response)
        except QbusError as error:
            has_failed = True
            self.responses.unanswered(ask.offsets, error)
        self._asked.pop(broker, None)
        if has_failed:
            self._changed.set()
            await asyncio.sleep(_RETRY_DELAY)
        self._fetches.pop(broker, None)
        if not has_failed and not is_reader_first:
            self.start()
            await asyncio.sleep(0)  # the request is on its way before the reader begins
        self._changed.set()
        if is_reader_first and not has_failed:
            self.start_soon()

    def _request(self, ask: _Ask) -> FetchRequest:
        options, metadata = self._options, self._cluster.metadata
        return FetchRequest(
            max_wait_ms=int(options.fetch_max_wait * 1000),
            min_bytes=options.fetch_min_bytes,
            max_bytes=ask.max_bytes,
            isolation_level=_READ_COMMITTED if options.read_committed else 0,
            rack_id=options.rack or "",
            topics=[
                FetchTopic(
                    topic=topic,
                    topic_id=ask.ids[topic].bytes,
                    partitions=[
                        FetchPartition(
                            partition=index,
                            current_leader_epoch=metadata.leader_epoch(topic, index),
                            fetch_offset=ask.offsets[TopicPartition(topic, index)],
                            partition_max_bytes=min(options.partition_max_bytes, ask.max_bytes),
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(ask.offsets).items()
            ],
        )


def _size(response: FetchResponse) -> int:
    return sum(
        len(data.records or b"") for topic in response.responses for data in topic.partitions
    )
