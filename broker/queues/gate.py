"""Whether a queue may give out anything: only what can be acknowledged, as far as is known.

Else it would be done, refused, and done again, and count as delivered each time. Three things keep
records back: what the partition lacks to take anything, a disk on which the last thing could not be
stored, and one that is known to be full. A disk is tried out before anything is given out on it:
as long as there is room for acknowledgements, records that are done may even make some.
"""

import logging
from collections.abc import Callable
from typing import Final

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode

from ..delay.log_throttle import LogThrottle
from ..partition.partition import Partition
from .alarm import Alarm

_log = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_COMPLAINT_S: Final = 60.0  # between two of the same


class Gate:
    """Lets records of one queue out. For the event loop.

    While it is shut and there are records, it looks again every second, by the queue's alarm.
    """

    __slots__ = (
        "_alarm",
        "_complaints",
        "_failure",
        "_is_proven",
        "_is_trying",
        "_length",
        "_lines",
        "_name",
        "_partition",
        "_try_out",
    )

    def __init__(
        self,
        name: str,
        partition: Partition,
        clock: Clock,
        alarm: Alarm,
        length: Callable[[], int],
        try_out: Callable[[], None],
    ) -> None:
        """``name``: the queue's; ``length``: of how many records could be given out.

        ``try_out`` begins to store something that changes nothing; one of :meth:`stored` and
        :meth:`failed` follows.
        """
        self._name = name
        self._partition = partition
        self._alarm = alarm
        self._length = length
        self._try_out = try_out
        self._complaints = LogThrottle(clock, _COMPLAINT_S)
        self._lines = LogThrottle(clock)
        self._failure = ""  # why the last thing could not be stored, if it could not
        self._is_trying = False
        self._is_proven = False  # a disk that is full has taken something all the same

    @property
    def is_open(self) -> bool:
        """Whether records may be given out now."""
        if self._alarm.is_resting:
            return False
        partition = self._partition
        if not partition.lack and not self._failure and not partition.log.has_full_disk:
            return True
        return self._opens()

    def _opens(self) -> bool:
        lack = self._partition.lack
        if not lack and not self._failure and self._is_proven:
            return True
        if not self._length():
            return False
        if lack:
            self._complain(lack)
            self._alarm.rest(_RETRY_S)
        elif not self._is_trying:
            self._is_trying = True
            self._try_out()
        return False

    def stored(self) -> None:
        """Something was stored."""
        self._is_trying = False
        if self._failure:
            self._failure = ""
            _log.info("%s: what is done can be stored again", self._name)
        self._is_proven = self._partition.log.has_full_disk

    def failed(self, error: ApiError) -> None:
        """Something could not be stored."""
        self._is_trying = False
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            self._failure = str(error)
            self._is_proven = False
            self._complain(
                f"what is done with its records cannot be stored: {error}; make room there if it"
                " is full: it goes on by itself once something can be stored"
            )
        elif self._lines.allows():
            _log.warning("%s: what was done cannot be stored: %s", self._name, error)
        self._alarm.rest(_RETRY_S)

    def _complain(self, why: str) -> None:
        if self._complaints.allows():
            _log.warning("%s: nothing is given out: %s", self._name, why)
