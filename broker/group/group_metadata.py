"""A group in memory, its znodes, and the writes between the two."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from qbus.errors import ErrorCode
from qbus.metadata import Op

from .machine import GroupMachine
from .offsets import Offset, TopicPartition
from .timers import Timer
from .znodes import GroupChange, GroupZnodes, ProducerEpoch

Done = Callable[[ErrorCode], None]


@dataclass(slots=True)
class _Write:
    """A change to store, with callbacks for its outcome.

    ``touches_group``: it changes the group itself, not only its offsets.
    """

    change: GroupChange = field(default_factory=GroupChange)
    touches_group: bool = False
    done: list[Done] = field(default_factory=list)


class GroupMetadata:
    """A coordinated group: its state machine, its znodes and its pending writes.

    Memory is ahead of the store by at most two writes: one in flight and one pending. Responses
    wait until the last of them is stored, so no client learns of state that could be lost.
    """

    def __init__(self, group: GroupMachine, znodes: GroupZnodes, since_ms: int) -> None:
        self.group = group
        self.znodes = znodes
        self.since_ms = since_ms  # when the group entered its state
        self.is_in_log = False  # whether its offsets are there, and not in the znodes
        self.is_fenced = False  # whether the log was led here when the fence existed already
        self.pending = dict(znodes.pending)  # as it is to be stored
        self.timer: Timer | None = None
        self.timer_at = 0.0
        self._abandoned = ErrorCode.NONE
        self._pending: _Write | None = None
        self._in_flight: _Write | None = None
        self._verifications: dict[ProducerEpoch, set[object]] = {}

    @property
    def group_id(self) -> str:
        """The group's id."""
        return self.group.group_id

    @property
    def is_abandoned(self) -> bool:
        """Whether a write failed, so that memory may differ from the store."""
        return bool(self._abandoned)

    @property
    def is_idle(self) -> bool:
        """Whether no write is pending or in flight."""
        return self._pending is None and self._in_flight is None

    @property
    def is_writing_group(self) -> bool:
        """Whether the write in flight changes the group itself, not only its offsets."""
        return self._in_flight is not None and self._in_flight.touches_group

    @property
    def is_disposable(self) -> bool:
        """Whether it may be forgotten: it has no members, and nothing of it is in the store."""
        return self.is_idle and self.znodes.version is None and self.group.is_vacant

    def offsets_of(self, topic: str) -> dict[int, Offset]:
        """Return the offsets of a topic that are stored or about to be."""
        offsets = dict(self.znodes.offsets.get(topic, {}))
        for writing in (self._in_flight, self._pending):
            for (name, partition), offset in writing.change.offsets.items() if writing else ():
                if name == topic and offset is not None:
                    offsets[partition] = offset
                elif name == topic:
                    offsets.pop(partition, None)
        return offsets

    def save_group(self) -> None:
        """Store the group's image, as it is when the write begins."""
        self._pending_write().touches_group = True

    def save_offsets(self, offsets: Mapping[TopicPartition, Offset | None], done: Done) -> None:
        """Store offsets (None deletes one). Later ones replace those that are pending.

        They also count instead of those that a transaction has brought before.
        """
        writing = self._pending_write()
        writing.change.offsets.update(offsets)
        self._supersede(offsets)
        writing.done.append(done)

    def has_pending(self, places: Iterable[TopicPartition]) -> bool:
        """Whether transactions have brought offsets for one of these partitions."""
        return any(place in brought for brought in self.pending.values() for place in places)

    def supersede(self, places: Collection[TopicPartition], done: Done) -> None:
        """What transactions have brought for these partitions does not count any more."""
        self._pending_write().done.append(done)
        self._supersede(places)

    def _supersede(self, places: Collection[TopicPartition]) -> None:
        for producer, brought in list(self.pending.items()):
            if not brought.keys().isdisjoint(places):
                left = {place: at for place, at in brought.items() if place not in places}
                self._set_pending(producer, left)

    def save_pending(
        self, producer: ProducerEpoch, offsets: Mapping[TopicPartition, Offset], done: Done
    ) -> None:
        """Store offsets that a producer's transaction brings, beside those that it has brought."""
        self._set_pending(producer, {**self.pending.get(producer, {}), **offsets})
        self._pending_write().done.append(done)

    def end_pending(
        self,
        producers: Iterable[ProducerEpoch],
        offsets: Mapping[TopicPartition, Offset | None],
        done: Done,
    ) -> None:
        """End transactions; store what counts now."""
        for producer in producers:
            self._set_pending(producer, None)
        writing = self._pending_write()
        writing.change.offsets.update(offsets)
        writing.done.append(done)

    def _set_pending(
        self, producer: ProducerEpoch, offsets: dict[TopicPartition, Offset] | None
    ) -> None:
        if offsets is None:
            self.pending.pop(producer, None)
        else:
            self.pending[producer] = offsets
        self._pending_write().change.pending[producer] = offsets

    def begin_verification(self, producer: ProducerEpoch) -> object:
        """Begin to ask whether a producer's transaction brings offsets."""
        token = object()
        self._verifications.setdefault(producer, set()).add(token)
        return token

    def end_verification(self, producer: ProducerEpoch, token: object) -> bool:
        """It was asked; return whether no such transaction has ended meanwhile."""
        tokens = self._verifications.get(producer)
        if tokens is None or token not in tokens:
            return False
        tokens.discard(token)
        if not tokens:
            del self._verifications[producer]
        return True

    def end_verifications(self, producer_id: int, epoch: int) -> None:
        """What is being asked of a producer's transactions up to an epoch does not count."""
        for producer in list(self._verifications):
            if producer[0] == producer_id and producer[1] <= epoch:
                del self._verifications[producer]

    def remove(self, done: Done) -> None:
        """Remove the group from the store."""
        writing = self._pending_write()
        writing.change.remove = writing.touches_group = True
        writing.done.append(done)

    def when_stored(self, done: Done) -> None:
        """Call ``done`` once the group is stored as it is now; at once if it is already."""
        if self._abandoned:
            done(self._abandoned)
            return
        for writing in (self._pending, self._in_flight):
            if writing is not None and writing.touches_group:
                writing.done.append(done)
                return
        done(ErrorCode.NONE)

    def begin_write(self) -> list[list[Op]]:
        """Move the pending write in flight; return its transactions."""
        assert self._in_flight is None
        writing, self._pending = self._pending, None
        if writing is None:
            return []
        self._in_flight = writing
        if writing.touches_group or self.znodes.version is None:
            writing.touches_group = True
            writing.change.image = self.group.image()
            writing.change.nodes = self.group.nodes()
            writing.change.since_ms = self.since_ms
        return self.znodes.plan(writing.change)

    def commit_write(self) -> None:
        """The write in flight is stored."""
        writing, self._in_flight = self._in_flight, None
        if writing is not None:
            self.znodes.apply(writing.change)
            for done in writing.done:
                done(ErrorCode.NONE)

    def abandon(self, error: ErrorCode) -> None:
        """What is stored is unknown: report ``error`` to all callbacks."""
        self._abandoned = error
        in_flight, pending = self._in_flight, self._pending
        self._in_flight = self._pending = None
        if in_flight is not None:
            for done in in_flight.done:
                done(error)
        if error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:  # what came later is not to blame
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if pending is not None:
            for done in pending.done:
                done(error)

    def refuse_pending(self) -> None:
        """Refuse what came since the group was abandoned: nobody writes it any more."""
        self.abandon(self._abandoned)

    def _pending_write(self) -> _Write:
        if self._pending is None:
            self._pending = _Write()
        return self._pending
