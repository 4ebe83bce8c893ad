"""What one follower fetches from this broker, request by request (KIP-227, for replicas).

A request names only the partitions that are different for the follower since the one before, an
answer only those that are different here. The session watches its partitions all the time and keeps
those with news, so an answer costs what is new, however many partitions there are.

What a follower asks for is what it has. Of a partition that it does not name it still has the same.
"""

from collections.abc import Iterable
from typing import Protocol

from qbus.errors import ErrorCode
from qbus.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

from ..partition.leader_throttle import LeaderThrottle
from ..partition.partition import Partition
from .fetch_reader import NO_OFFSET, NO_RECORDS, FetchReader
from .replica_target import FollowedPartition, ReplicaTarget

_LAST_EPOCH = (1 << 31) - 1


class Partitions(Protocol):
    """Where the partitions of this broker are found."""

    def get_partition(self, topic: bytes, index: int) -> Partition | None:
        """A partition, if it is here."""

    def why_missing(self, topic: bytes, index: int) -> ErrorCode:
        """What is said of one that is not."""


class Waiting(Protocol):
    """A request of the session that is not answered yet."""

    def on_news(self) -> None:
        """There is more to read, or something that is to be told at once."""

    def on_hint(self) -> None:
        """There is something that may wait a little for records to go along with."""

    def give_up(self) -> None:
        """Another request has come: answer that there is nothing, for that one gets it all."""


class ReplicaSession:
    """The session ``session_id`` of a follower, a broker that is registered under its epoch.

    ``pending`` is how many bytes came since the last answer; ``asked_at`` is when it asked last.
    """

    def __init__(
        self,
        session_id: int,
        replica_id: int,
        broker_epoch: int,
        partitions: Partitions,
        throttle: LeaderThrottle,
    ) -> None:
        self.session_id = session_id
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.asked_at = 0.0
        self.epoch = 1
        self.pending = 0
        self.waiting: Waiting | None = None
        self._partitions = partitions
        self._throttle = throttle
        self._followed: dict[tuple[bytes, int], FollowedPartition] = {}
        self._news: dict[FollowedPartition, None] = {}
        self._hints: dict[FollowedPartition, PartitionData] = {}

    def __len__(self) -> int:
        return len(self._followed)

    def next_epoch(self) -> None:
        """The request with the expected epoch has come (KIP-227: it never becomes 0 again)."""
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def take(self, request: FetchRequest, now: float) -> list[Partition]:
        """Note what the follower has, and what it follows; the partitions that it told of."""
        self.asked_at = now
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self._forget((topic.topic_id, index))
        told = []
        for wanted_topic in request.topics:
            for wanted in wanted_topic.partitions:
                followed = self._follow((wanted_topic.topic_id, wanted.partition), wanted)
                if followed.partition is not None and self._acknowledge(followed, now):
                    told.append(followed.partition)
        return told

    @property
    def has_hints(self) -> bool:
        """Whether the last answer left something out that may wait for records to go along with."""
        return bool(self._hints)

    def gather(self, reader: FetchReader, *, hints: bool) -> FetchResponse:
        """All that is new, as far as ``reader`` has room; the rest stays for the next time.

        ``hints``: also if that is no more than where high watermarks and logs' starts are.
        """
        self.pending = 0
        news, self._news = self._news, {}
        answers = [(one, data) for one in news if (data := self._read(one, reader)) is not None]
        if answers or hints:
            answers += self._hints.items()
            self._hints = {}
        return FetchResponse(session_id=self.session_id, responses=_by_topic(answers))

    def still_caught_up(self) -> None:
        """Tell the partitions of which the follower has everything that it has it still."""
        for followed in self._followed.values():
            if followed.has_all:
                self._acknowledge(followed, self.asked_at)

    def close(self) -> None:
        """Watch nothing any more."""
        self.waiting = None
        for followed in self._followed.values():
            followed.unwatch()
        self._followed.clear()
        self._news.clear()
        self._hints.clear()

    # What the followed partitions say

    def note(self, followed: FollowedPartition, size: int, *, at_once: bool) -> None:
        """There is news: ``size`` more bytes, or something else, which may be told at once."""
        self._news[followed] = None
        self.pending += size
        if self.waiting is None:
            return
        if size or at_once:
            self.waiting.on_news()
        else:
            self.waiting.on_hint()

    def _follow(self, key: tuple[bytes, int], wanted: FetchPartition) -> FollowedPartition:
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = FollowedPartition(self, key, wanted)
        else:
            followed.wanted = wanted
        followed.watch(self._partitions.get_partition(*key))
        self._news[followed] = None
        return followed

    def _forget(self, key: tuple[bytes, int]) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None:
            followed.unwatch()
            self._news.pop(followed, None)
            self._hints.pop(followed, None)

    def _acknowledge(self, followed: FollowedPartition, now: float) -> bool:
        """Whether what the follower has was told to a partition that is led here, in this epoch."""
        partition, wanted = followed.partition, followed.wanted
        if partition is None or wanted.current_leader_epoch != partition.leader_epoch:
            return False
        if (
            not partition.log.log_start_offset
            <= wanted.fetch_offset
            <= partition.log.log_end_offset
        ):
            return False
        partition.note_start(self.replica_id, wanted.log_start_offset)
        return partition.fetched(self.replica_id, self.broker_epoch, wanted.fetch_offset, now)

    def _read(self, followed: FollowedPartition, reader: FetchReader) -> PartitionData | None:
        """Records or an error of a partition; None: there are none, or there is no room."""
        self._hints.pop(followed, None)
        followed.watch(self._partitions.get_partition(*followed.key))
        data = PartitionData(
            partition_index=followed.key[1], high_watermark=NO_OFFSET, records=NO_RECORDS
        )
        partition, before = followed.partition, reader.size
        if partition is None:
            data.error_code = self._partitions.why_missing(*followed.key)
            reader.failed = True
        elif not followed.has_all and self._throttle.applies(partition, self.replica_id):
            if not self._throttle.is_exhausted:
                reader.read(ReplicaTarget(partition, followed.wanted, data))
                self._throttle.spend(reader.size - before)
        else:
            reader.read(ReplicaTarget(partition, followed.wanted, data))
        if data.error_code:  # until the follower does without, or it is over
            self._news[followed] = None
        elif reader.size > before:
            followed.tell(data)
        else:
            if not followed.has_all:  # no room for it this time
                self._news[followed] = None
            elif followed.tell(data):
                self._hints[followed] = data
            return None
        return data


def _by_topic(
    answers: Iterable[tuple[FollowedPartition, PartitionData]],
) -> list[FetchableTopicResponse]:
    topics: dict[bytes, FetchableTopicResponse] = {}
    for followed, data in answers:
        topic = topics.get(followed.topic_id)
        if topic is None:
            topic = FetchableTopicResponse(topic_id=followed.topic_id, partitions=[])
            topics[followed.topic_id] = topic
        topic.partitions.append(data)
    return list(topics.values())
