"""The partitions that a consumer reads, and how far it is in each. Pure."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from qbus.errors import QbusError

from ..types import OffsetAndMetadata, TopicPartition
from .completed_fetch import CompletedFetch
from .fetch_cursor import FetchCursor


class PartitionState:
    """One partition: its position and what was fetched from there.

    ``position`` is None as long as it has to be found: where ``reset_to`` (EARLIEST or LATEST) is,
    or, when that is None too, where the group left off. A partition that ``is_stopped`` gives no
    more records: the group is taking it away, and what was read of it is being committed. One that
    ``is_paused`` keeps what was fetched until the user goes on. ``epoch`` is that of the leader
    that wrote the record before the position, ``leader_epoch`` that of the leader whose log was
    found to have it; -1: not known. ``cursor`` is what a poll or a loop was lent. ``end_offset``
    and ``start_offset`` are what the leader told last. Nothing is fetched from ``stop_at`` on.
    """

    __slots__ = (
        "committed",
        "cursor",
        "end_offset",
        "epoch",
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
    )

    def __init__(self) -> None:
        self.position: int | None = None
        self.reset_to: int | None = None
        self.committed: int | None = None
        self.fetched: deque[CompletedFetch] = deque()
        self.cursor: FetchCursor | None = None
        self.is_stopped = False
        self.is_paused = False
        self.epoch = -1
        self.leader_epoch = -1
        self.start_offset = -1
        self.end_offset = -1
        self.stop_at: int | None = None
        self.nearby = -1
        self.nearby_until = 0.0

    @property
    def fetch_offset(self) -> int | None:
        """Where the next fetch begins: after what was fetched already."""
        return self.fetched[-1].next_offset if self.fetched else self.position

    @property
    def held_bytes(self) -> int:
        """Bytes of frames that wait to be read."""
        return sum(fetched.nbytes for fetched in self.fetched)

    def drop(self) -> None:
        """What was fetched, or lent and not given, is not wanted."""
        self.fetched.clear()
        if self.cursor is not None:
            self.cursor.close()
            self.position, self.epoch = self.read_to, self.read_epoch
            self.cursor = None

    def close_cursor(self) -> None:
        """No more is given of what was lent: the position is behind what was."""
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
        """What can be taken next, if anything can."""
        if self.is_paused or self.is_stopped or not self.fetched:
            return None
        return self.fetched[0]

    def has_read(self, fetched: CompletedFetch) -> None:
        """The position is behind what was taken of ``fetched``."""
        if self.fetched and self.fetched[0] is fetched:
            self._follow(fetched)
            if fetched.is_exhausted:
                self.fetched.popleft()
        elif self.position is not None and self.position < fetched.position:
            self.fetched.clear()  # it was forgotten meanwhile, and is not to be read again
            self._follow(fetched)
            self.leader_epoch = min(self.leader_epoch, self.epoch)  # or not sound: look again

    def _follow(self, fetched: CompletedFetch) -> None:
        self.position = fetched.position
        if fetched.epoch >= 0:
            self.epoch = fetched.epoch

    @property
    def read_to(self) -> int | None:
        """The offset after the last record that the user has."""
        return self.position if self.cursor is None else self.cursor.read_to

    @property
    def read_epoch(self) -> int:
        """The epoch of the leader that wrote that record; -1: not known."""
        if self.cursor is None or self.cursor.read_to == self.position:
            return self.epoch
        return self.cursor.fetched.epoch


class Assignment:
    """The partitions that are read now."""

    def __init__(self) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.states)

    @property
    def topics(self) -> set[str]:
        """The topics of the partitions."""
        return {partition.topic for partition in self.states}

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these from now on, from positions that have yet to be found."""
        for state in self.states.values():
            state.drop()
        self.states = {partition: PartitionState() for partition in partitions}

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these too."""
        for partition in partitions:
            self.states.setdefault(partition, PartitionState())

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Give no more records of these, which go soon; their positions stay."""
        for partition in partitions:
            state = self.states.get(partition)
            if state is not None:
                state.is_stopped = True
                state.drop()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no longer."""
        for partition in partitions:
            state = self.states.pop(partition, None)
            if state is not None:
                state.drop()

    def move_to_end(self, partition: TopicPartition) -> None:
        """Let the other partitions have their turn first."""
        self.states[partition] = self.states.pop(partition)

    def position(self, partition: TopicPartition) -> int | None:
        """Where the next record is; None: not yet known, or not assigned."""
        state = self.states.get(partition)
        return state.read_to if state is not None else None

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on elsewhere; a negative offset is EARLIEST or LATEST.

        Raises :class:`~qbus.errors.QbusError` when the partition is not assigned.
        """
        state = self.assigned(partition)
        state.drop()
        state.epoch = -1
        state.position = offset if offset >= 0 else None
        state.reset_to = offset if offset < 0 else None

    def assigned(self, partition: TopicPartition) -> PartitionState:
        """One partition; raises :class:`~qbus.errors.QbusError` when it is not assigned."""
        state = self.states.get(partition)
        if state is None:
            raise QbusError(f"{partition.topic}-{partition.partition} is not assigned")
        return state

    def without_position(self) -> dict[TopicPartition, int | None]:
        """The partitions whose position has to be found, and where."""
        return {
            partition: state.reset_to
            for partition, state in self.states.items()
            if state.position is None
        }

    def found(
        self, partition: TopicPartition, offset: int, *, committed: bool, epoch: int = -1
    ) -> None:
        """A position that was missing, and the epoch of what is before it."""
        state = self.states.get(partition)
        if state is not None and state.position is None:
            state.position = offset
            state.epoch = epoch
            state.committed = offset if committed else None

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions that are not committed yet."""
        return {
            partition: OffsetAndMetadata(read_to, leader_epoch=state.read_epoch)
            for partition, state in self.states.items()
            if (read_to := state.read_to) is not None and read_to != state.committed
        }

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These were committed."""
        for partition, offset in offsets.items():
            state = self.states.get(partition)
            if state is not None:
                state.committed = offset.offset
