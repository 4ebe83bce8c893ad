"""Finding jobs by their ids: whose partition it is, and where in it the job lies."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from qbus.jobs import (
    GROUP,
    JobId,
    JobIdCheck,
    is_delayed_in,
    offset_in,
    parse_id,
    partition_key,
    place_in,
)

from ..delay.held import HeldRecord
from ..metadata.image import Event, Topic, TopicCreated, TopicDeleted
from ..partition.acknowledgement import acknowledged
from ..partition.partition import Partition
from ..queues import ShareQueue
from ..queues.types import Ranges
from .delivered_search import DeliveredSearch
from .queues import JobSettings, Queues

_UNACKNOWLEDGED_S: Final = 5.0  # how long a command waits for a job that is not acknowledged yet
_MOST_NOTED: Final = 200_000  # delivered jobs whose places are kept
_MOST_KNOWN: Final = 10_000  # partitions that jobs are found in without a look at the metadata
_FEW_KNOWN: Final = 64  # of these that are not looked over for such as are gone


class Place:
    """A job's id, and the topic that it is in."""

    __slots__ = ("job", "topic")

    def __init__(self, job: JobId, topic: Topic) -> None:
        self.job = job
        self.topic = topic

    @property
    def leader(self) -> int:
        """The broker that leads the job's partition, or NO_LEADER."""
        return self.topic.partitions[self.job.partition].leader


class Found:
    """A job of a partition that is led here.

    It lies at ``offset``; None: it is delayed, and ``held`` is what is held back of it.
    """

    __slots__ = ("held", "offset", "partition", "place", "queue")

    def __init__(
        self,
        place: Place,
        partition: Partition,
        queue: ShareQueue,
        offset: int | None,
        held: HeldRecord | None = None,
    ) -> None:
        self.place = place
        self.partition = partition
        self.queue = queue
        self.offset = offset
        self.held = held


class Together:
    """Jobs of one partition that is led here: where they lie, and what they are called.

    ``offsets`` of their records; of delayed ones ``delayed`` has what their ids say.
    """

    __slots__ = ("delayed", "offsets", "queue", "texts", "topic_id")

    def __init__(self, queue: ShareQueue, topic_id: bytes) -> None:
        self.queue = queue
        self.topic_id = topic_id
        self.offsets: list[int] = []
        self.texts: list[bytes] = []
        self.delayed: list[JobId] = []

    def add(self, text: bytes, offset: int, delayed: JobId | None) -> None:
        """Take in a job."""
        self.offsets.append(offset)
        self.texts.append(text)
        if delayed is not None:
            self.delayed.append(delayed)

    def ranges(self) -> Ranges:
        """The offsets, neighbours in one range, ascending."""
        offsets = self.offsets
        if len(offsets) == 1:
            return [(offsets[0], offsets[0])]
        found: list[tuple[int, int]] = []
        first = last = -1
        for offset in sorted(offsets):
            if offset == last + 1 and first >= 0:
                last = offset
            elif offset != last:
                if first >= 0:
                    found.append((first, last))
                first = last = offset
        found.append((first, last))
        return found

    def texts_of(self, ranges: Ranges) -> list[bytes]:
        """The ids of those that lie in some of the ranges."""
        within = {one for first, last in ranges for one in range(first, last + 1)}
        pairs = zip(self.texts, self.offsets, strict=True)
        return [text for text, offset in pairs if offset in within]


class _Known:
    """A partition that jobs were found in before, and whether ids are of its topic."""

    __slots__ = ("check", "index", "key", "partition", "queue", "topic_id", "topic_name")

    def __init__(
        self, key: bytes, topic: Topic, index: int, partition: Partition, queue: ShareQueue
    ) -> None:
        self.key = key
        self.topic_id = topic.id
        self.topic_name = topic.name
        self.index = index
        self.partition = partition
        self.queue = queue
        self.check = JobIdCheck(topic.id)


class Topics:
    """Which topic a job is in. ``known`` are those of now, :meth:`changed` follows."""

    def __init__(self, known: Mapping[str, Topic]) -> None:
        self._by_tag: dict[bytes, list[bytes]] = {}
        for topic in known.values():
            self._add(topic)

    def changed(self, events: Iterable[Event]) -> None:
        """Topics came or went."""
        for event in events:
            if isinstance(event, TopicCreated):
                self._add(event.topic)
            elif isinstance(event, TopicDeleted):
                ids = self._by_tag.get(event.topic.id[:4], [])
                if event.topic.id in ids:
                    ids.remove(event.topic.id)

    def _add(self, topic: Topic) -> None:
        self._by_tag.setdefault(topic.id[:4], []).append(topic.id)

    def place(self, text: bytes, by_id: Mapping[bytes, Topic]) -> Place | None:
        """Where a job is; None: in no partition that there is."""
        job = parse_id(text)
        if job is None:
            return None
        for topic_id in self._by_tag.get(job.topic_tag, ()):
            topic = by_id.get(topic_id)
            if topic is not None and job.is_in(topic_id) and job.partition < len(topic.partitions):
                return Place(job, topic)
        return None


class DeliveredJobs:
    """Where delayed jobs lie since they were delivered, of the last ones that were given out."""

    def __init__(self, most: int = _MOST_NOTED) -> None:
        self._most = most
        self._offsets: OrderedDict[tuple[bytes, int, int], int] = OrderedDict()

    def note(self, job: JobId, topic_id: bytes, offset: int) -> None:
        """A job was given out."""
        self._offsets[topic_id, job.partition, job.offset] = offset
        if len(self._offsets) > self._most:
            self._offsets.popitem(last=False)

    def offset(self, job: JobId, topic_id: bytes) -> int | None:
        """Where a job lies, if that is known."""
        return self._offsets.get((topic_id, job.partition, job.offset))

    def forget(self, job: JobId, topic_id: bytes) -> None:
        """A job is done."""
        self._offsets.pop((topic_id, job.partition, job.offset), None)


class HeldRecords(Protocol):
    """Finds records that are held back."""

    async def find(self, partition: Partition, offsets: Sequence[int]) -> list[HeldRecord]:
        """Those whose producers were told ``offsets``. Raises ApiError."""

    async def describe(
        self, partition: Partition, after: tuple[int, int], most: int
    ) -> tuple[int, int | None, list[HeldRecord]]:
        """How many there are, when the next is due, and those behind ``after``: due time, place."""


class Finder:
    """Finds jobs in the partitions that are led here."""

    def __init__(
        self,
        queues: Queues,
        delays: HeldRecords,
        delivered: DeliveredJobs,
        leader_of: Callable[[str, int], Partition],
        settings: JobSettings,
        place: Callable[[bytes], Place | None],
        topics_by_id: Callable[[], Mapping[bytes, Topic]],
        me: int,
    ) -> None:
        """``leader_of`` returns a partition that is led here, or raises ApiError.

        ``place`` tells where a job is, by its id. ``me``: this broker.
        """
        self._search = DeliveredSearch()
        self._place = place
        self._topics_by_id = topics_by_id
        self._me = me
        self._known: dict[bytes, _Known] = {}
        self._look_over_at = _FEW_KNOWN  # with so many of them
        self._queues = queues
        self._delays = delays
        self._delivered = delivered
        self._leader_of = leader_of
        self._settings = settings

    def gather(
        self,
        texts: Sequence[bytes],
        may_find: Callable[[str], bool] | None,
        *,
        is_local: bool,
    ) -> list[Together] | None:
        """Jobs that were given out here, by partition, without those that there are none of.

        None: :meth:`find` has to look for some. ``may_find`` tells of a topic whether the client
        may find its jobs. ``is_local``: whoever leads the partitions. Raises ApiError, and what
        ``may_find`` raises.
        """
        groups: dict[ShareQueue, Together] = {}
        known: _Known | None = None
        for text in texts:
            bits = place_in(text)
            if not bits:
                continue
            key = partition_key(bits)
            if known is None or key != known.key:
                known = self._usable(key, is_local)
            if known is None or not known.check.holds(text, bits):
                place = self._place(text)
                if place is None:
                    continue
                known = self._learn(key, place, is_local)
                if known is None:
                    return None
            if may_find is None or may_find(known.topic_name):
                group = groups.get(known.queue)
                if group is None:
                    group = groups[known.queue] = Together(known.queue, known.topic_id)
                if not self._add(group, text, bits, known.partition.high_watermark):
                    return None
        return list(groups.values())

    def _add(self, group: Together, text: bytes, bits: bytes, end: int) -> bool:
        """Take a job in; false: where its record lies is not known, or not before ``end``."""
        if not is_delayed_in(bits):
            offset = offset_in(bits)
            group.add(text, offset, None)
            return offset < end
        job = parse_id(text)
        found = None if job is None else self._delivered.offset(job, group.topic_id)
        if found is None:
            return False
        group.add(text, found, job)
        return found < end

    def _usable(self, key: bytes, is_local: bool) -> _Known | None:
        """A partition that is known, if it is still led here."""
        known = self._known.get(key)
        if known is None:
            return None
        topic = self._topics_by_id().get(known.topic_id)
        is_ours = topic is not None and (
            is_local or topic.partitions[known.index].leader == self._me
        )
        if is_ours and known.queue.is_current:
            return known
        del self._known[key]
        return None

    def _learn(self, key: bytes, place: Place, is_local: bool) -> _Known | None:
        """Remember the partition of a job; None: somebody else leads it, or it has not begun."""
        if place.leader != self._me and not is_local:
            return None
        topic, index = place.topic, place.job.partition
        partition = self._leader_of(topic.name, index)
        queue = self._queues.queue(partition, GROUP, self._settings.group)
        if not queue.is_current:
            return None
        if len(self._known) >= self._look_over_at:
            self._look_over()
        known = self._known[key] = _Known(key, topic, index, partition, queue)
        return known

    def _look_over(self) -> None:
        """Let go of partitions that are led here no more, or deleted, with all that they hold."""
        known = {key: one for key, one in self._known.items() if not one.queue.is_closed}
        self._known = known if len(known) < _MOST_KNOWN else {}
        self._look_over_at = min(2 * len(self._known) + _FEW_KNOWN, _MOST_KNOWN)

    async def find(self, place: Place) -> Found | None:
        """Where a job lies; None: it is not there, or not any more. Raises ApiError."""
        job, topic = place.job, place.topic
        partition = self._leader_of(topic.name, job.partition)
        queue = self._queues.queue(partition, GROUP, self._settings.group)
        await queue.started()
        if partition.high_watermark <= job.offset < partition.log.log_end_offset:
            # Its client has the id already: ADDJOB ... ASYNC answers before that.
            deadline = asyncio.get_running_loop().time() + _UNACKNOWLEDGED_S
            await acknowledged(partition, job.offset + 1, deadline)
        if not job.is_delayed:
            if job.offset >= partition.high_watermark:
                return None
            return Found(place, partition, queue, job.offset)
        offset = self._delivered.offset(job, topic.id)
        if offset is not None:
            return Found(place, partition, queue, offset)
        for held in await self._delays.find(partition, [job.offset]):
            return Found(place, partition, queue, None, held)
        record = await self._search.find(partition, job.offset, job.seconds * 1000)
        if record is None:
            return None
        self._delivered.note(job, topic.id, record.offset)
        return Found(place, partition, queue, record.offset)
