"""A producer's batch with delayed records, or orders about them, on its way into a partition."""

from typing import Final

from qbus.delay import BY_KEY
from qbus.errors import ApiError, ErrorCode
from qbus.records import read_header

from ..log import AppendInfo
from .delayed_partition import DelayedPartition
from .held import HeldRecord
from .intake import Taken, find_targets, notes_of, to_append

_FEW: Final = 16  # orders that are looked up at once


class PartitionIntake:
    """Such a batch.

    ``needs_thread``: :meth:`read` has to be called first, in a thread.
    """

    def __init__(
        self, delayed: DelayedPartition, taken: Taken | None, acks: int, known: AppendInfo | None
    ) -> None:
        self._delayed = delayed
        self._taken = taken
        self._acks = acks
        self._known = known
        self._targets: dict[int, list[HeldRecord]] = {}
        self._notes: list[tuple[int, str]] = []
        self.needs_thread = known is not None
        if taken is not None and taken.orders:
            self._taken = taken._replace(batch=bytes(taken.batch))
            self.needs_thread = self._needs_thread(taken)

    def _needs_thread(self, taken: Taken) -> bool:
        if len(taken.orders) > _FEW or any(order.target == BY_KEY for _, order, _ in taken.orders):
            return True
        try:
            self._find(wait=False)
        except BlockingIOError:
            return True
        return False

    def _find(self, *, wait: bool) -> None:
        delayed = self._delayed
        assert self._taken is not None
        self._targets = find_targets(self._taken, delayed.fold, delayed.held, wait=wait)

    def read(self) -> None:
        """Find what the batch's orders are about, or what was said about them; for a thread.

        Raises ApiError.
        """
        if self._known is None:
            self._find(wait=True)
            return
        try:
            self._notes = notes_of(self._delayed.partition.log, self._known)
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def append(self) -> tuple[AppendInfo, list[tuple[int, str]]]:
        """Append the batch; what became of it, and what is to be said about single records.

        Raises ApiError as :meth:`Partition.append` does.
        """
        delayed, taken = self._delayed, self._taken
        if self._known is not None or taken is None:
            assert self._known is not None
            return self._known, self._notes
        partition = delayed.partition
        log = partition.log
        batches, notes = to_append(
            taken, self._targets, delayed.fold, log.config, log.log_end_offset
        )
        fold = delayed.fold
        if taken.held:
            fold.expected = read_header(batches).crc, taken.held
        try:
            info = partition.append_own(batches, taken.header.records_count, self._acks)
        finally:
            fold.expected = None
        if taken.held:
            delayed.held.keep_arrivals(batches, taken.held)
        delayed.wake()
        return info, notes
