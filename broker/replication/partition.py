"""A partition as its leader keeps it: the log, the high watermark, and who waits for it to move.

The high watermark is the offset below which records are acknowledged and visible. With ``fsync``
durability it follows what is on stable storage, with ``memory`` durability what is written; it
never goes back while the partition is led. Everything here runs in the event loop. Only flushes run
in threads, one at a time for each partition, and report back to the loop.
"""

import logging
from collections import deque
from typing import Protocol

from qbus.errors import ApiError, ErrorCode

from ..log import AppendInfo, EpochEnd, Log
from .flusher import Flusher

_log = logging.getLogger(__name__)

ACKS_ALL = -1
NO_EPOCH = -1

# What a client is told to be refused was not written, for all it knows; this says "perhaps".
_PERHAPS_WRITTEN = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
_NOT_HERE = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER})


class AckWaiter(Protocol):
    """Waits for the high watermark to pass what it appended."""

    def done(self) -> bool:
        """Whether it waits no more."""

    def settled(self, token: object, code: ErrorCode) -> None:
        """What was registered with ``token`` is acknowledged (NONE), or never will be."""


class Watcher(Protocol):
    """Waits for records to become visible."""

    def advanced(self, size: int) -> None:
        """``size`` more bytes can be read; 0: something else changed, as the leader or the log.

        Must not add or remove watchers before it returns.
        """


class Partition:
    """One partition that this broker holds a replica of.

    ``error`` is what every request for it gets at the moment: NONE while it is led here. Bytes and
    messages are counted since the start.
    """

    __slots__ = (
        "_acks",
        "_flusher",
        "_flushing",
        "_unstable",
        "bytes_in",
        "bytes_out",
        "durable",
        "error",
        "high_watermark",
        "index",
        "isr",
        "leader_epoch",
        "log",
        "messages_in",
        "min_insync_replicas",
        "topic",
        "watchers",
    )

    def __init__(self, topic: str, index: int, log: Log, flusher: Flusher) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.leader_epoch = NO_EPOCH
        self.isr: tuple[int, ...] = ()
        self.high_watermark = log.log_start_offset
        self.durable = True
        self.min_insync_replicas = 1
        self.watchers: dict[Watcher, None] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self._flusher = flusher
        self._flushing = False
        self._unstable: deque[tuple[int, int]] = deque()  # end offset and bytes of each append
        self._acks: deque[tuple[int, AckWaiter, object]] = deque()

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    # Leadership

    def lead(self, leader_epoch: int, isr: tuple[int, ...]) -> None:
        """Be the leader in ``leader_epoch``, with ``isr`` as the replicas that are in sync."""
        self.leader_epoch = leader_epoch
        self.isr = isr
        self.error = ErrorCode.NONE
        self._follow_log()

    def refuse(self, code: ErrorCode) -> None:
        """Answer ``code`` from now on: it is not led here any more.

        Those who wait hear the same of a topic that is gone. Otherwise what they appended may be
        kept, so they must not be told that it was refused: NOT_ENOUGH_REPLICAS_AFTER_APPEND.
        """
        self.error = code
        self._unstable.clear()
        while self._acks:
            _, waiter, token = self._acks.popleft()
            waiter.settled(token, self._after_append)
        self.wake()

    def configure(self, *, durable: bool, min_insync_replicas: int) -> None:
        """Take changed settings over; the log has its own."""
        self.durable = durable
        self.min_insync_replicas = min_insync_replicas
        if not self.error:
            self._follow_log()

    def check(self, leader_epoch: int = NO_EPOCH) -> ErrorCode:
        """What a client gets that takes this partition to be led in ``leader_epoch``.

        KIP-320: -1 skips the check, an older epoch is fenced, a newer one not known here yet.
        """
        if self.error or leader_epoch in {NO_EPOCH, self.leader_epoch}:
            return self.error
        if leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Where ``epoch`` ended, or the nearest older one that has records; -1, -1: unknown."""
        end_offset = self.log.log_end_offset
        epochs = self.log.epoch_cache
        latest = epochs.latest_epoch
        if latest < epoch <= self.leader_epoch:  # epochs without records, up to this leader's
            older = epoch if epoch == self.leader_epoch or latest < 0 else latest
            return EpochEnd(older, end_offset)
        return epochs.end_offset_for(epoch, end_offset)

    # Writing

    def append(self, batch: memoryview, acks: int) -> AppendInfo:
        """Append one batch, which is changed in place.

        Raises:
            ApiError: NOT_ENOUGH_REPLICAS, or what the log refuses the batch with.
        """
        if acks == ACKS_ALL and len(self.isr) < self.min_insync_replicas:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self} has {len(self.isr)} in-sync replicas, {self.min_insync_replicas} needed",
            )
        info = self.log.append(batch, self.leader_epoch)
        if not info.duplicate:
            self._appended(info, len(batch))
        return info

    def when_acknowledged(self, end_offset: int, waiter: AckWaiter, token: object) -> None:
        """Tell ``waiter`` when everything below ``end_offset`` is acknowledged."""
        acks = self._acks
        while acks and acks[0][1].done():  # it gave up: time-outs leave in the order they came
            acks.popleft()
        if self.error:
            waiter.settled(token, self._after_append)
        else:
            acks.append((end_offset, waiter, token))

    @property
    def is_behind(self) -> bool:
        """Whether something waits for a flush, and none is under way."""
        return bool(self._unstable) and not self._flushing

    def flush(self) -> None:
        """Begin to flush what is written, unless a flush is under way."""
        if not self._flushing:
            self._flushing = True
            self._flusher.submit(self.log.flush, self._flushed)

    def wake(self) -> None:
        """Have those who wait for records look again."""
        for watcher in self.watchers:
            watcher.advanced(0)

    @property
    def _after_append(self) -> ErrorCode:
        return _PERHAPS_WRITTEN if self.error in _NOT_HERE else self.error

    # What follows from the log

    def _appended(self, info: AppendInfo, size: int) -> None:
        end = info.last_offset + 1
        self.bytes_in += size
        self.messages_in += end - info.first_offset
        if self.durable:
            self._unstable.append((end, size))
            self.flush()
        else:
            self._advance(end, size)
            if end - self.log.flushed_offset >= self.log.config.flush_messages:
                self.flush()

    def _flushed(self, result: int | BaseException) -> None:
        self._flushing = False
        if self.error:
            return
        if isinstance(result, BaseException):
            _log.error("flushing %s failed: %s", self, result)
            # A shortage passes: upkeep begins the next flush, and whoever waits goes on waiting.
            if not self.log.is_usable:
                self.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        self._reach(result)
        if self._unstable:
            self.flush()

    def _follow_log(self) -> None:
        """Move the high watermark to where durability lets it be."""
        end = self.log.log_end_offset
        if not self.durable:
            self._reach(end)
            return
        self._reach(self.log.flushed_offset)
        if self.log.flushed_offset < end:
            if not self._unstable:
                self._unstable.append((end, 0))
            self.flush()

    def _reach(self, offset: int) -> None:
        size = 0
        unstable = self._unstable
        while unstable and unstable[0][0] <= offset:
            size += unstable.popleft()[1]
        if offset > self.high_watermark:
            self._advance(offset, size)

    def _advance(self, offset: int, size: int) -> None:
        self.high_watermark = offset
        acks = self._acks
        while acks and acks[0][0] <= offset:
            _, waiter, token = acks.popleft()
            waiter.settled(token, ErrorCode.NONE)
        for watcher in self.watchers:
            watcher.advanced(size)
