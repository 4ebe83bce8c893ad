"""Positions as the broker's tables take them: see ``qbus.broker.group.offset_table``."""

from collections.abc import Iterable
from struct import pack


def packed(positions: Iterable[tuple[int, int, int, str]]) -> bytes:
    """``positions``: partition, offset, leader epoch, metadata."""
    texts = [(index, offset, epoch, text.encode()) for index, offset, epoch, text in positions]
    return b"".join(
        pack(">iqiH", index, offset, epoch, len(text)) + text
        for index, offset, epoch, text in texts
    )
