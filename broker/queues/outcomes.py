"""What came of records that are done: who waits for that, and what was said of them."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from qbus.records.control import Change, ChangeKind, ControlType, decode_result, iter_control

from ..log import Log

_log = logging.getLogger(__name__)

Settled = Callable[[bool], None]
"""Called when a record is done (true), or when that will not be known here (false)."""


class SettledListeners:
    """Who waits until records are done, by the records' offsets."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[int, list[Settled]] = {}

    def add(self, offset: int, callback: Settled) -> None:
        """Call ``callback`` once the record at ``offset`` is done."""
        self._waiting.setdefault(offset, []).append(callback)

    def forget(self, offset: int, callback: Settled) -> None:
        """Do not call it."""
        waiting = self._waiting.get(offset)
        if waiting is not None and callback in waiting:
            waiting.remove(callback)
            if not waiting:
                del self._waiting[offset]

    def in_changes(self, changes: Sequence[Change]) -> list[int]:
        """The records that somebody waits for and that ``changes`` finish."""
        if not self._waiting:
            return []
        return [
            offset
            for offset in self._waiting
            if any(
                change.first <= offset <= change.last and change.kind is not ChangeKind.RETURNED
                for change in changes
            )
        ]

    def tell(self, offsets: Sequence[int], acknowledged: "asyncio.Future[None]") -> None:
        """Tell those who wait for these records: they are done for good, or may not be."""
        is_done = not acknowledged.cancelled() and acknowledged.exception() is None
        for offset in offsets:
            for callback in self._waiting.pop(offset, ()):
                _call(callback, is_done)

    def close(self) -> None:
        """Tell all who wait that it will not be known here."""
        waiting, self._waiting = self._waiting, {}
        for callbacks in waiting.values():
            for callback in callbacks:
                _call(callback, False)


def _call(callback: Settled, is_done: bool) -> None:
    try:
        callback(is_done)
    except Exception:  # noqa: BLE001 - the others wait, too
        _log.exception("who waits for a record to be done cannot go on")


def read_result(log: Log, place: int) -> bytes | None:
    """The result in the RESULT record at ``place``; None: it is not there any more. For threads.

    Raises ApiError, OSError.
    """
    records = log.read_batch(place, wait=True)
    if records is None:
        return None
    with records:
        records.warm()
        batch = records.read()
    for control in iter_control(batch):
        if control.offset == place and control.type is ControlType.RESULT:
            return decode_result(control.value).body
    return None
