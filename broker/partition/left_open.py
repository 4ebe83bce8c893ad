"""The transactions that a mirror's source left open, once the mirror is a topic of its own.

Their markers will never come, and without these no consumer of committed records would get any
further. The leader aborts them, at once or as soon as it can; each replica has them in mind, for it
may lead later.
"""

import logging
from collections.abc import Callable
from typing import Final

from qbus.errors import ApiError

from ..log import Producer, ProducerState

_log = logging.getLogger(__name__)

NOTHING_OPEN: Final = -1


class LeftOpen:
    """The first offsets of these transactions, by producer id; true while there are any.

    ``is_mirror``: whether the partition is a mirror now.
    """

    __slots__ = ("_starts", "is_mirror")

    def __init__(self, *, is_mirror: bool) -> None:
        self.is_mirror = is_mirror
        self._starts: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def become(self, *, is_mirror: bool, producers: ProducerState) -> None:
        """Have in mind what is open when a mirror has ended; a mirror's source ends them."""
        if is_mirror is not self.is_mirror:
            self.is_mirror = is_mirror
            self._starts = {} if is_mirror else producers.open_transactions

    def abort(
        self, producers: ProducerState, abort: Callable[[Producer, int], object], partition: str
    ) -> None:
        """Abort those that are open still, by ``abort``, given the producer and coordinator epoch.

        One that it raises ApiError for is kept in mind. ``partition`` is for the log.
        """
        for producer in producers:
            start = self._starts.pop(producer.producer_id, NOTHING_OPEN)
            if start == NOTHING_OPEN or start != producer.transaction_start:
                continue
            try:
                abort(producer, max(producer.coordinator_epoch, 0))
            except ApiError as error:
                self._starts[producer.producer_id] = start
                _log.warning(
                    "%s: the transaction of producer %d, which its source left open, cannot be"
                    " aborted yet: %s",
                    partition,
                    producer.producer_id,
                    error,
                )
