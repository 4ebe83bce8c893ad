"""The partitions that a consumer reads, and how far it is in each. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from qbus.errors import QbusError

from ..types import OffsetAndMetadata, TopicPartition
from .fetched import Fetched


class PartitionState:
    """One partition: its position and what was fetched from there.

    ``position`` is None as long as it has to be found: where ``reset_to`` (EARLIEST or LATEST) is,
    or, when that is None too, where the group left off. A partition that ``is_stopped`` gives no
    more records: the group is taking it away, and what was read of it is being committed.
    """

    __slots__ = ("committed", "fetched", "is_stopped", "position", "reset_to")

    def __init__(self) -> None:
        self.position: int | None = None
        self.reset_to: int | None = None
        self.committed: int | None = None
        self.fetched: Fetched | None = None
        self.is_stopped = False


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
                state.is_stopped, state.fetched = True, None

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no longer."""
        for partition in partitions:
            self.states.pop(partition, None)

    def move_to_end(self, partition: TopicPartition) -> None:
        """Let the other partitions have their turn first."""
        self.states[partition] = self.states.pop(partition)

    def position(self, partition: TopicPartition) -> int | None:
        """Where the next record is; None: not yet known, or not assigned."""
        state = self.states.get(partition)
        return state.position if state is not None else None

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on elsewhere; a negative offset is EARLIEST or LATEST.

        Raises :class:`~qbus.errors.QbusError` when the partition is not assigned.
        """
        state = self.states.get(partition)
        if state is None:
            raise QbusError(f"{partition.topic}-{partition.partition} is not assigned")
        state.fetched = None
        state.position = offset if offset >= 0 else None
        state.reset_to = offset if offset < 0 else None

    def without_position(self) -> dict[TopicPartition, int | None]:
        """The partitions whose position has to be found, and where."""
        return {
            partition: state.reset_to
            for partition, state in self.states.items()
            if state.position is None
        }

    def found(self, partition: TopicPartition, offset: int, *, committed: bool) -> None:
        """A position that was missing."""
        state = self.states.get(partition)
        if state is not None and state.position is None:
            state.position = offset
            state.committed = offset if committed else None

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions that are not committed yet."""
        return {
            partition: OffsetAndMetadata(state.position)
            for partition, state in self.states.items()
            if state.position is not None and state.position != state.committed
        }

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These were committed."""
        for partition, offset in offsets.items():
            state = self.states.get(partition)
            if state is not None:
                state.committed = offset.offset
