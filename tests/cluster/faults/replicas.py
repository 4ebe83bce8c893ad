"""Compares the files of replicas: below the high watermark all must hold the same batches."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from qbus.records import HEADER_SIZE, CorruptBatch, check_crc, read_header


class Batch(NamedTuple):
    """A batch in a segment file."""

    base_offset: int
    next_offset: int
    data: bytes


def batches(directory: Path) -> list[Batch]:
    """The batches of one replica, by offset, up to the first that is torn or corrupt."""
    found: list[Batch] = []
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        position = 0
        while position < len(data):
            try:
                header = read_header(data, position)
                check_crc(data, header, position)
            except CorruptBatch:
                return found
            end = position + header.size
            next_offset = header.base_offset + header.last_offset_delta + 1
            found.append(Batch(header.base_offset, next_offset, data[position:end]))
            position = end
    return found


def differences(directories: Mapping[int, Path], high_watermark: int) -> list[str]:
    """Describe the differences between replicas, by node, below the high watermark."""
    below = {
        node: [batch for batch in batches(path) if batch.base_offset < high_watermark]
        for node, path in directories.items()
    }
    wrong: list[str] = []
    for node, replica in below.items():
        held = max((batch.next_offset for batch in replica), default=0)
        if held < high_watermark:
            wrong.append(f"node {node} ends at {held}, below {high_watermark}")
    first, *others = below
    for other in others:
        for left, right in zip(below[first], below[other], strict=False):
            if left != right:
                headers = [batch.data[:HEADER_SIZE].hex() for batch in (left, right)]
                wrong.append(
                    f"nodes {first} and {other} differ: {left[:2]} and {right[:2]}"
                    f" with headers {' '.join(headers)}"
                )
                break
    return wrong
