"""The assigned partitions and the position in each. Pure."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from operator import index
from uuid import UUID

from qbus.errors import QbusError

from ..types import NO_ID, OffsetAndMetadata, TopicPartition
from .completed_fetch import CompletedFetch
from .fetch_cursor import FetchCursor


class PartitionState:
    """One partition: its position, and the fetched records from there on.

    position: the offset of the next record; None while it is looked up: at ``reset_to`` (EARLIEST
        or LATEST), or where the group's committed offset is if that is None too.
    is_stopped: gives no more records; the group revokes the partition, and a commit is under way.
    is_paused: keeps fetched records until the user resumes.
    epoch: leader epoch of the last record before the position; -1: not known.
    leader_epoch: epoch of the leader whose log is known to hold that record; -1: not known.
    cursor: what a poll or a loop reads now.
    failure: why it cannot be read on, until the user is told or continues elsewhere.
    start_offset, end_offset: what the leader told last.
    stop_at: nothing is fetched from this offset on.
    topic_id: of the topic that the position is in; None: not known yet; NO_ID: it has none.
    """

    __slots__ = (
        "committed",
        "cursor",
        "end_offset",
        "epoch",
        "failure",
        "fetched",
        "is_paused",
        "is_stopped",
        "leader_epoch",
        "nearby",
        "nearby_until",
        "position",
        "reset_to",
        "start_offset",
        "stop_at",
        "topic_id",
    )

    def __init__(self) -> None:
        self.position: int | None = None
        self.reset_to: int | None = None
        self.committed: int | None = None
        self.fetched: deque[CompletedFetch] = deque()
        self.cursor: FetchCursor | None = None
        self.failure: QbusError | None = None
        self.is_stopped = False
        self.is_paused = False
        self.epoch = -1
        self.leader_epoch = -1
        self.start_offset = -1
        self.end_offset = -1
        self.stop_at: int | None = None
        self.topic_id: UUID | None = None
        self.nearby = -1
        self.nearby_until = 0.0

    @property
    def fetch_offset(self) -> int | None:
        """The offset of the next fetch: after everything fetched already."""
        return self.fetched[-1].next_offset if self.fetched else self.position

    @property
    def known_id(self) -> UUID | None:
        """The id of the topic that the position is in; None: not known, or the broker has none."""
        return self.topic_id if self.topic_id != NO_ID else None

    @property
    def held_bytes(self) -> int:
        """Bytes of fetched data that wait to be read."""
        return sum(fetched.nbytes for fetched in self.fetched)

    def drop(self) -> None:
        """Drop fetched records, those a cursor has not delivered, and what was found behind them.

        Nothing is lost: it is fetched again where it is read on.
        """
        self.fetched.clear()
        self.failure = None
        if self.cursor is not None:
            self.cursor.close()
            self.position, self.epoch = self.read_to, self.read_epoch
            self.cursor = None

    def restart(self, topic_id: UUID) -> None:
        """Begin anew in another topic of the same name: nothing known of the former one holds."""
        self.drop()
        self.position = self.reset_to = self.committed = self.stop_at = None
        self.epoch = self.leader_epoch = self.start_offset = self.end_offset = self.nearby = -1
        self.topic_id = topic_id

    def close_cursor(self) -> None:
        """End the cursor, and move the position behind what it delivered."""
        cursor = self.cursor
        if cursor is None:
            return
        if not cursor.close():
            self.drop()
            return
        self.cursor = None
        self.has_read(cursor.fetched)

    @property
    def ready(self) -> CompletedFetch | None:
        """What can be read next, if anything can."""
        if self.is_paused or self.is_stopped or not self.fetched:
            return None
        return self.fetched[0]

    def has_read(self, fetched: CompletedFetch) -> None:
        """Move the position behind what was read of ``fetched``."""
        if self.fetched and self.fetched[0] is fetched:
            self._advance(fetched)
            if fetched.is_exhausted:
                self.fetched.popleft()
        elif self.position is not None and self.position < fetched.position:
            self.fetched.clear()  # dropped meanwhile: not to be read again
            self._advance(fetched)
            self.leader_epoch = min(self.leader_epoch, self.epoch)  # check for truncation again

    def _advance(self, fetched: CompletedFetch) -> None:
        """Take the position and epoch of ``fetched``."""
        self.position = fetched.position
        if fetched.epoch >= 0:
            self.epoch = fetched.epoch

    @property
    def read_to(self) -> int | None:
        """The offset after the last record that the user has."""
        return self.position if self.cursor is None else self.cursor.read_to

    @property
    def read_epoch(self) -> int:
        """Leader epoch of that record; -1: not known."""
        if self.cursor is None or self.cursor.read_to == self.position:
            return self.epoch
        return self.cursor.fetched.epoch


class Assignment:
    """The assigned partitions."""

    def __init__(self) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.states)

    @property
    def topics(self) -> set[str]:
        """The topics of the partitions."""
        return {partition.topic for partition in self.states}

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign these partitions instead; their positions are yet to be found."""
        for state in self.states.values():
            state.drop()
        self.states = {partition: PartitionState() for partition in partitions}

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign these partitions too."""
        for partition in partitions:
            self.states.setdefault(partition, PartitionState())

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Give no more records of these partitions, which go soon; their positions stay."""
        for partition in partitions:
            state = self.states.get(partition)
            if state is not None:
                state.is_stopped = True
                state.drop()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Unassign these partitions."""
        for partition in partitions:
            state = self.states.pop(partition, None)
            if state is not None:
                state.drop()

    def move_to_end(self, partition: TopicPartition) -> None:
        """Let the other partitions have their turn first."""
        self.states[partition] = self.states.pop(partition)

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record; None: not yet known, or not assigned."""
        state = self.states.get(partition)
        return state.read_to if state is not None else None

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset; a negative one is EARLIEST or LATEST.

        Raises :class:`~qbus.errors.QbusError` when the partition is not assigned.
        """
        state = self.assigned(partition)
        offset = index(offset)
        state.drop()
        state.epoch = -1
        state.position = offset if offset >= 0 else None
        state.reset_to = offset if offset < 0 else None

    def seek_to_committed(self, partition: TopicPartition) -> None:
        """Continue where the group has committed; raise as :meth:`seek`."""
        state = self.assigned(partition)
        state.drop()
        state.epoch = -1
        state.position = state.reset_to = state.committed = None

    def assigned(self, partition: TopicPartition) -> PartitionState:
        """Return a partition's state; raise :class:`~qbus.errors.QbusError` when it is not
        assigned.
        """
        state = self.states.get(partition)
        if state is None:
            raise QbusError(f"{partition.topic}-{partition.partition} is not assigned")
        return state

    def without_position(self) -> dict[TopicPartition, int | None]:
        """Return the partitions whose position must be found, and where to find it."""
        return {
            partition: state.reset_to
            for partition, state in self.states.items()
            if state.position is None
        }

    def found(
        self, partition: TopicPartition, offset: int, *, committed: bool, epoch: int = -1
    ) -> None:
        """Set a missing position, and the leader epoch of the record before it."""
        state = self.states.get(partition)
        if state is not None and state.position is None:
            state.position = offset
            state.epoch = epoch
            state.committed = offset if committed else None

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions that are not committed yet."""
        return {
            partition: OffsetAndMetadata(
                read_to, leader_epoch=state.read_epoch, topic_id=state.known_id
            )
            for partition, state in self.states.items()
            if (read_to := state.read_to) is not None and read_to != state.committed
        }

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note committed offsets, but not those of a topic that was deleted meanwhile."""
        for partition, offset in offsets.items():
            state = self.states.get(partition)
            if state is not None and offset.topic_id in {None, state.topic_id}:
                state.committed = offset.offset

    def with_ids(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return ``offsets``, those without a topic id with that of the partition's position."""
        completed = dict(offsets)
        for partition, offset in offsets.items():
            state = self.states.get(partition)
            if state is not None and offset.topic_id is None:
                completed[partition] = offset._replace(topic_id=state.known_id)
        return completed
