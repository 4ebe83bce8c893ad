"""The header of a plain batch, checked in one pass: what nearly every produced batch is.

Compiled where there is a compiler (``_header.pyx``); the twin here is what runs elsewhere.
"""

import os
from collections.abc import Callable
from typing import Final

from qbus.errors import CorruptBatch
from qbus.records.header import (
    LENGTH_PREFIX,
    BatchHeader,
    Buffer,
    Compression,
    check_crc,
    read_header,
)

REVISION: Final = 1
"""What the compiled form offers; another number means that it was built from other sources."""


def portable_plain_header(batch: Buffer) -> BatchHeader | None:
    """Compute the same as :func:`plain_header`, on any machine."""
    try:
        header = read_header(batch)
        if header.size != len(batch):
            return None
        check_crc(batch, header)
    except CorruptBatch:
        return None
    is_plain = (
        header.batch_length + LENGTH_PREFIX == len(batch)
        and 0 <= header.attributes <= Compression.ZSTD
        and 0 <= header.last_offset_delta == header.records_count - 1
        and (header.producer_id < 0 or min(header.producer_epoch, header.base_sequence) >= 0)
    )
    return header if is_plain else None


def _fastest() -> Callable[[Buffer], BatchHeader | None]:
    if os.environ.get("QBUS_CODEC") == "python":
        return portable_plain_header
    try:
        from qbus.records import _header  # noqa: PLC0415 - it may not be there
    except ImportError:
        return portable_plain_header
    return _header.plain_header if _header.REVISION == REVISION else portable_plain_header


_plain_header: Final = _fastest()


def plain_header(batch: Buffer) -> BatchHeader | None:
    """The header of ``batch``, if that is one whole plain batch.

    Plain is one with a right CRC whose counts agree, that belongs to no transaction, is no control
    batch, and has the timestamps that its producer gave. None is no refusal: it may be well, but is
    to be looked at more closely.
    """
    return _plain_header(batch)
