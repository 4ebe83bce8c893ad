"""A producer's batch with delayed records, or orders about them, on its way into a partition.

It is a :class:`NewBatch`, or a :class:`StoredBatch` that came before. Where one ``needs_thread``, a
thread calls its ``read`` first. Then ``append``, on the event loop, says where the batch lies, and
what became of the orders in it. The first offset is -1 where the records do not follow one another.
"""

from typing import Final

from qbus.delay import BY_KEY
from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader, read_header

from ..log import AppendInfo, StoredPart, Verification
from .delayed_partition import DelayedPartition
from .held import HeldRecord
from .intake import (
    OrdersStored,
    StoredMeanwhileError,
    Taken,
    orders_stored,
    places_of_targets,
    read_targets,
    to_append,
)

_MAX_SEQUENCE: Final = 2**31 - 1
_FEW: Final = 16  # orders that are looked up at once
_UNKNOWN: Final = -1  # an offset


class NewBatch:
    """A batch that is to be appended, or what is missing of one whose ``beginning`` is stored."""

    def __init__(
        self,
        delayed: DelayedPartition,
        taken: Taken,
        acks: int,
        beginning: StoredPart | None,
        verification: Verification | None = None,
    ) -> None:
        """``verification``: that of a transaction's first batch."""
        self._verification = verification
        self._delayed = delayed
        self._taken = taken
        self._acks = acks
        self._beginning = beginning
        self._orders = OrdersStored([], 0)  # those of the beginning
        self._targets: dict[int, list[HeldRecord]] = {}
        self._places: dict[int, list[int]] = {}
        self.needs_thread = beginning is not None
        if orders := taken.orders:
            self._places = places_of_targets(taken, delayed.fold)
            by_key = any(order.target == BY_KEY for _, order, _ in orders)
            if by_key or len(orders) > _FEW or self._targets_are_far():
                self.needs_thread = True
        if self.needs_thread:  # beyond the life of the request's frame
            self._taken = taken._replace(batch=bytes(taken.batch))

    def _targets_are_far(self) -> bool:
        held = self._delayed.held
        try:
            self._targets = read_targets(self._taken, self._places, held, wait=False)
        except BlockingIOError:
            return True
        return False

    def read(self) -> None:
        """Read what the batch's orders are about; for a thread. Raises ApiError."""
        taken, delayed = self._taken, self._delayed
        try:
            self._targets = read_targets(taken, self._places, delayed.held, wait=True)
            if self._beginning is not None:
                self._orders = orders_stored(delayed.partition.log, taken.header, self._beginning)
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def append(self) -> tuple[AppendInfo, OrdersStored]:
        """Append the batch.

        Raises StoredMeanwhileError, and ApiError as :meth:`Partition.append` does.
        """
        taken, fold, partition = self._taken, self._delayed.fold, self._delayed.partition
        log = partition.log
        if self.needs_thread:
            if partition.error:
                raise ApiError(partition.error)
            if log.stored_part(taken.header) != self._beginning:
                raise StoredMeanwhileError(taken.batch)
        if (header := taken.header).is_transactional:
            partition.check_transaction(
                header.producer_id,
                header.producer_epoch,
                self._verification,
                (header.base_sequence + taken.stored) & _MAX_SEQUENCE,
            )
        batches, orders = to_append(taken, self._targets, fold, log.config, log.log_end_offset)
        if taken.held:
            fold.expected = read_header(batches).crc, taken.held
        try:
            info = partition.append_own(
                batches, taken.header.records_count - taken.stored, self._acks
            )
        finally:
            fold.expected = None
        if taken.held:
            self._delayed.held.keep_arrivals(batches, taken.held)
        self._delayed.wake()
        return self._with_beginning(info), self._orders.with_rest(orders)

    def _with_beginning(self, info: AppendInfo) -> AppendInfo:
        beginning = self._beginning
        if beginning is None:
            return info
        follows = beginning.is_contiguous and beginning.last_offset + 1 == info.first_offset
        return info._replace(first_offset=beginning.first_offset if follows else _UNKNOWN)


class StoredBatch:
    """A batch that is stored already, and came again."""

    needs_thread: Final = True

    def __init__(self, delayed: DelayedPartition, header: BatchHeader, stored: StoredPart) -> None:
        self._partition = delayed.partition
        self._header = header
        self._stored = stored
        self._orders = OrdersStored([], 0)

    def read(self) -> None:
        """Read what became of the batch's orders; for a thread. Raises ApiError."""
        try:
            self._orders = orders_stored(self._partition.log, self._header, self._stored)
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def append(self) -> tuple[AppendInfo, OrdersStored]:
        """Append nothing. Raises ApiError when the partition is not led here any more."""
        if self._partition.error:
            raise ApiError(self._partition.error)
        log, stored = self._partition.log, self._stored
        info = AppendInfo(
            stored.first_offset if stored.is_contiguous else _UNKNOWN,
            stored.last_offset,
            stored.timestamp if log.config.uses_log_append_time else -1,
            log.log_start_offset,
            duplicate=True,
        )
        return info, self._orders


PartitionIntake = NewBatch | StoredBatch
