"""``damaged-batches``: which ranges of a log were found damaged, and when; ours.

A line for each range, and the CRC-32C of all lines before the last::

    0
    1
    0 5 812 10 1624 1764326570123      segment, first offset and position, end, milliseconds
    crc: 7ac3d119

Crash policy: the file says nothing that the log does not say itself, but for the time. One that
does not check is passed over, and so is a range where there is no such damage; ranges that no file
names are found again by whoever reads them.
"""

import logging
from collections.abc import Iterable, Sequence

from qbus.records import crc32c

from .damage import DamagedRange, is_batch_at
from .files import Files, read_file, replace_file
from .scan import BadBatch, Place, scan
from .segment import LogSegment

_logger = logging.getLogger(__name__)

DAMAGED_BATCHES = "damaged-batches"

_VERSION = "0"
_FIELDS = 6
_CRC = "crc: "

DamageEntry = tuple[int, DamagedRange]
"""A segment's base offset, and a range in it."""


class BadDamageFile(ValueError):  # noqa: N818 - what was found
    """A file that is torn, damaged or of an unknown version."""


def encode_damage(entries: Iterable[DamageEntry]) -> bytes:
    """The file's content."""
    lines = [
        f"{base} {one.start.offset} {one.start.position} {one.end.offset} {one.end.position}"
        f" {one.since_ms}"
        for base, one in entries
    ]
    body = "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines))
    return f"{body}{_CRC}{crc32c(body.encode()):08x}\n".encode()


def decode_damage(data: bytes) -> list[DamageEntry]:
    """The entries. Raises BadDamageFile."""
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError as error:
        raise BadDamageFile(str(error)) from error
    body, found, crc = text.rpartition(_CRC)
    if not found or crc != f"{crc32c(body.encode()):08x}\n":
        raise BadDamageFile("the CRC does not match")
    version, count, *lines = body.splitlines()
    if version != _VERSION or count != str(len(lines)):
        raise BadDamageFile(f"version {version} of {count} lines")
    return [_decode(line) for line in lines]


def _decode(line: str) -> DamageEntry:
    try:
        base, offset, position, end_offset, end_position, since_ms = map(int, line.split(" "))
    except ValueError as error:
        raise BadDamageFile(f"{line!r} is not {_FIELDS} numbers") from error
    start, end = Place(offset, position), Place(end_offset, end_position)
    return base, DamagedRange(start, end, "found before this start", since_ms)


def entries_of(segments: Iterable[LogSegment]) -> list[DamageEntry]:
    """What there is to be written down."""
    return [(segment.base_offset, one) for segment in segments for one in segment.damage]


def save_damage(files: Files, directory: str, entries: Sequence[DamageEntry]) -> None:
    """Write down what is damaged; without any damage there is no file.

    A disk that does not take it is logged: the log itself says where it is damaged.
    """
    path = f"{directory}/{DAMAGED_BATCHES}"
    try:
        if entries:
            replace_file(files, path, encode_damage(entries), sync=True)
        elif files.exists(path):
            files.remove(path)
    except OSError as error:
        _logger.warning("%s cannot be written: %s", path, error)


def load_damage(files: Files, directory: str, segments: Iterable[LogSegment]) -> None:
    """Let ``segments`` step over the ranges that the file names and that are damaged still.

    Raises OSError.
    """
    path = f"{directory}/{DAMAGED_BATCHES}"
    if not files.exists(path):
        return
    by_base = {segment.base_offset: segment for segment in segments}
    try:
        entries = decode_damage(read_file(files, path))
    except BadDamageFile as bad:
        _logger.warning("%s is passed over: %s", path, bad)
        return
    for base, damaged in entries:
        segment = by_base.get(base)
        if segment is not None and _is_damaged(segment, damaged):
            segment.set_damaged(damaged)
        else:
            _logger.warning(
                "%s names offsets %d to %d, where no damage begins or ends",
                path,
                damaged.start.offset,
                damaged.end.offset - 1,
            )


def _is_damaged(segment: LogSegment, damaged: DamagedRange) -> bool:
    """Whether the log goes on behind the range, and what is in it is no good."""
    start, end = damaged.start, damaged.end
    size = segment.file.size()
    if not (segment.base_offset <= start.offset <= end.offset and start <= end):
        return False
    if end.position > size or end.position < start.position:
        return False
    if end.position < size and not is_batch_at(segment.file, end.position, size, end.offset - 1):
        return False
    return not damaged.size or _is_bad(segment, damaged)


def _is_bad(segment: LogSegment, damaged: DamagedRange) -> bool:
    """Whether the bytes of a range are not whole batches. Raises OSError."""
    (offset, position), end = damaged.start, damaged.end.position
    try:
        for _ in scan(segment.file, position, end, offset, gaps=segment.gaps):
            pass
    except BadBatch:
        return True
    return False
