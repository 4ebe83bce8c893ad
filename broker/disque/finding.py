"""Finding jobs by their ids: whose partition it is, and where in it the job lies."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from qbus.jobs import GROUP, JobId, parse_id

from ..delay.held import HeldRecord
from ..metadata.image import Event, Topic, TopicCreated, TopicDeleted
from ..partition.partition import Partition
from ..queues import ShareQueue
from .queues import JobSettings, Queues
from .reading import find_delivered

_MOST_NOTED: Final = 200_000  # delivered jobs whose places are kept


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
    ) -> None:
        """``leader_of`` returns a partition that is led here, or raises ApiError."""
        self._queues = queues
        self._delays = delays
        self._delivered = delivered
        self._leader_of = leader_of
        self._settings = settings

    def at_hand(self, place: Place) -> Found | None:
        """Where a job lies that was given out; None: :meth:`find` has to look. Raises ApiError."""
        job, topic = place.job, place.topic
        offset = self._delivered.offset(job, topic.id) if job.is_delayed else job.offset
        if offset is None:
            return None
        partition = self._leader_of(topic.name, job.partition)
        queue = self._queues.queue(partition, GROUP, self._settings.group)
        if not queue.is_started or offset >= partition.high_watermark:
            return None
        return Found(place, partition, queue, offset)

    async def find(self, place: Place) -> Found | None:
        """Where a job lies; None: it is not there, or not any more. Raises ApiError."""
        job, topic = place.job, place.topic
        partition = self._leader_of(topic.name, job.partition)
        queue = self._queues.queue(partition, GROUP, self._settings.group)
        await queue.started()
        if not job.is_delayed:
            if job.offset >= partition.high_watermark:
                return None
            return Found(place, partition, queue, job.offset)
        offset = self._delivered.offset(job, topic.id)
        if offset is not None:
            return Found(place, partition, queue, offset)
        for held in await self._delays.find(partition, [job.offset]):
            return Found(place, partition, queue, None, held)
        record = await asyncio.to_thread(
            find_delivered,
            partition.log,
            topic.name,
            partition.index,
            job.offset,
            job.seconds * 1000,
            partition.high_watermark,
        )
        if record is None:
            return None
        self._delivered.note(job, topic.id, record.offset)
        return Found(place, partition, queue, record.offset)
