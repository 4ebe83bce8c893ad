"""What retention would take, and is not due yet, is appended again at the end of the log."""

from collections.abc import Iterator, Sequence
from typing import Final

from qbus.records.control import (
    Carried,
    ControlType,
    control_batch,
    encode_carried,
    encode_int64,
)

from .fold import DelayFold
from .held import HeldRecord, HeldRecords
from .schedule import Held

MOST_BYTES: Final = 256 * 1024


def lying_before(fold: DelayFold, offset: int) -> Iterator[list[Held]]:
    """The records that lie before ``offset``, some entries looked at for each list that is yielded.

    The schedule may change between two lists: what goes to another slot meanwhile may be missing.
    """
    for slot in fold.schedule.slots():
        # From the end, for what is carried is taken out, and put in again at the end.
        for some in slot.pieces():
            yield sorted((one for one in some if one.offset < offset), key=_offset_of)


def _offset_of(held: Held) -> int:
    return held.offset


def read_lying(
    held: HeldRecords, entries: Sequence[Held], *, wait: bool
) -> tuple[list[HeldRecord], int]:
    """The records of the first ``entries``, about ``MOST_BYTES``; of how many entries they are.

    Raises as :meth:`HeldRecords.read` does.
    """
    records: list[HeldRecord] = []
    size = 0
    for number, entry in enumerate(entries):
        record = held.read(entry.offset, wait=wait)
        if record is not None:
            records.append(record._replace(due=entry.due))
            size += len(record.key or b"") + len(record.value or b"") + 200
        if size >= MOST_BYTES:
            return records, number + 1
    return records, len(entries)


def to_carry(records: Sequence[HeldRecord], fold: DelayFold, now_ms: int) -> bytearray:
    """The batch that carries those of ``records`` that are still held back; empty for none."""
    from qbus.records.encode import build_batch  # noqa: PLC0415 - loads the codec

    carried = [
        Carried(
            record.due,
            record.offset,
            record.original_offset,
            record.taken_ms,
            record.timestamp,
            bytes(build_batch([(record.key, record.value, record.headers, record.timestamp)])),
        )
        for record in records
        if fold.schedule.contains(record.due, record.offset)
    ]
    if not carried:
        return bytearray()
    return control_batch([(ControlType.CARRIED, encode_carried(one)) for one in carried], now_ms)


def all_carried(offset: int, now_ms: int) -> bytearray:
    """The batch that says that no delayed record lies before ``offset`` any more."""
    return control_batch([(ControlType.BOUND, encode_int64(offset))], now_ms)
