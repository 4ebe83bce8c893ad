"""A producer's batch with delayed records, or orders about them, on its way into a partition."""

from typing import Final

from qbus.delay import BY_KEY
from qbus.errors import ApiError, ErrorCode
from qbus.records import read_header

from ..log import AppendInfo, StoredPart
from .delayed_partition import DelayedPartition
from .held import HeldRecord
from .intake import OrdersStored, Taken, orders_stored, places, read_targets, to_append

_FEW: Final = 16  # orders that are looked up at once


class PartitionIntake:
    """Such a batch: ``taken``, or one that is ``stored`` already.

    ``needs_thread``: :meth:`read` has to be called first, in a thread.
    """

    def __init__(
        self,
        delayed: DelayedPartition,
        taken: Taken | None,
        acks: int,
        stored: StoredPart | None,
    ) -> None:
        self._delayed = delayed
        self._taken = taken
        self._acks = acks
        self._stored = stored
        self._places: dict[int, list[int]] = {}
        self._targets: dict[int, list[HeldRecord]] = {}
        self._orders = OrdersStored([], 0)
        self.needs_thread = taken is None
        if taken is not None and taken.orders:
            self._taken = taken._replace(batch=bytes(taken.batch))
            self._places = places(taken, delayed.fold)
            self.needs_thread = self._needs_thread(taken)

    def _needs_thread(self, taken: Taken) -> bool:
        if len(taken.orders) > _FEW or any(order.target == BY_KEY for _, order, _ in taken.orders):
            return True
        try:
            self._targets = read_targets(taken, self._places, self._delayed.held, wait=False)
        except BlockingIOError:
            return True
        return False

    def read(self) -> None:
        """Read what the batch's orders are about, or what was said about them; for a thread.

        Raises ApiError.
        """
        if self._taken is None:
            self._orders = self._said()
        else:
            self._targets = read_targets(self._taken, self._places, self._delayed.held, wait=True)

    def _said(self) -> OrdersStored:
        """What was said about the orders of a batch that is stored. Raises ApiError."""
        assert self._stored is not None
        log = self._delayed.partition.log
        try:
            return orders_stored(log, self._stored.first_offset, self._stored.last_offset)
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def append(self) -> tuple[AppendInfo, OrdersStored]:
        """Append the batch; what became of it, and of the orders in it.

        Raises ApiError as :meth:`Partition.append` does.
        """
        if self.needs_thread and self._taken is not None:
            self._look_again(self._taken)
        if self._taken is None:
            return self._known(), self._orders
        taken, fold, partition = self._taken, self._delayed.fold, self._delayed.partition
        log = partition.log
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
        if self._stored is not None:
            info = info._replace(first_offset=self._stored.first_offset)
        return info, orders

    def _look_again(self, taken: Taken) -> None:
        """See whether the batch was stored over another connection while a thread read for it.

        Raises ApiError.
        """
        stored = self._delayed.partition.log.stored_part(taken.header)
        if stored is None or stored.records_count == taken.stored:
            return
        if stored.records_count < taken.header.records_count:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the batch is being stored")
        self._taken, self._stored = None, stored
        self._orders = self._said()

    def _known(self) -> AppendInfo:
        """Where a batch lies that is stored."""
        assert self._stored is not None
        log, stored = self._delayed.partition.log, self._stored
        stamped = stored.timestamp if log.config.uses_log_append_time else -1
        start = log.log_start_offset
        return AppendInfo(stored.first_offset, stored.last_offset, stamped, start, duplicate=True)
