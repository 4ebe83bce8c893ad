"""Appends the markers that end transactions to partitions that this broker leads."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from qbus.errors import ApiError, ErrorCode

from ..partition.partition import Partition
from .markers import Marker
from .state import Place

_log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 30.0
_OLDEST_VERSION: Final = 1


class LedPartitions(Protocol):
    """The partitions that this broker leads."""

    def leader_of(self, topic: str | bytes, index: int) -> Partition:
        """One of them. Raises ApiError: it is not led here."""


class MarkerAppends:
    """Markers that are appended together, and what becomes of them.

    ``told`` is called once, with a code for each partition of each marker, in their order: when all
    are acknowledged, or after ``timeout_s``, when the others have REQUEST_TIMED_OUT.
    """

    __slots__ = ("_codes", "_is_done", "_timeout_s", "_timer", "_told", "_waiting")

    def __init__(
        self, told: Callable[[list[ErrorCode]], object], timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._told = told
        self._timeout_s = timeout_s
        self._codes: list[ErrorCode] = []
        self._waiting = 1  # for the last one
        self._timer: asyncio.TimerHandle | None = None
        self._is_done = False

    def append(self, partitions: LedPartitions, markers: Sequence[Marker]) -> None:
        """Append them; what cannot be appended has its error."""
        for marker in markers:
            for place in marker.partitions:
                self._append(partitions, marker, place)
        self._count_down()
        if not self._is_done:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._finish)

    def _append(self, partitions: LedPartitions, marker: Marker, place: Place) -> None:
        number = len(self._codes)
        self._codes.append(ErrorCode.REQUEST_TIMED_OUT)
        try:
            partition = partitions.leader_of(*place)
            info = partition.end_transaction(
                marker.producer_id,
                marker.epoch,
                marker.coordinator_epoch,
                committed=marker.committed,
                version=max(marker.transaction_version, _OLDEST_VERSION),
            )
        except ApiError as error:
            self._codes[number] = error.code
        except Exception:  # noqa: BLE001 - the others are told
            _log.exception("a marker for %s-%d cannot be written", *place)
            self._codes[number] = ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            self._waiting += 1
            if partition.high_watermark > info.last_offset:
                self.acknowledged(number, ErrorCode.NONE)
            else:
                partition.when_acknowledged(info.last_offset + 1, self, number)

    # As who waits for partitions

    def done(self) -> bool:
        """Whether nobody waits any longer."""
        return self._is_done

    def acknowledged(self, token: object, code: ErrorCode) -> None:
        """The marker with that number is acknowledged (NONE), or never will be."""
        assert isinstance(token, int)
        self._codes[token] = code
        self._count_down()

    def _count_down(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._finish()

    def _finish(self) -> None:
        if self._is_done:
            return
        self._is_done = True
        if self._timer is not None:
            self._timer.cancel()
        self._told(self._codes)
