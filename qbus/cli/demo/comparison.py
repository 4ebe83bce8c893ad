"""Compares consumed records with the produced file, byte for byte and in order.

The producer sends pieces of the file to the partitions in turn; the `Plan` lists them. Each
partition's values come back as one stream of lines in the order of their offsets. Read in the order
of the plan, the streams must equal the file.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

_BLOCK = 1024 * 1024


class Piece(NamedTuple):
    """Lines that went to one partition; ``size`` includes a newline for each."""

    partition: int
    size: int


@dataclass(slots=True)
class Plan:
    """The produced pieces, in the order of the file."""

    pieces: list[Piece] = field(default_factory=list)
    lines: int = 0
    size: int = 0

    def add(self, partition: int, lines: Sequence[bytes]) -> None:
        """Note that ``lines`` go to ``partition`` next."""
        size = sum(map(len, lines)) + len(lines)
        self.pieces.append(Piece(partition, size))
        self.lines += len(lines)
        self.size += size


class Comparison(NamedTuple):
    """The result; ``difference`` says where the streams differ, None if they are equal."""

    sent_sha256: str
    received_sha256: str
    difference: str | None


def compare(plan: Plan, sent: Callable[[int], bytes], received: Sequence[BinaryIO]) -> Comparison:
    """Read both sides in the order of ``plan``.

    ``sent(n)`` returns the next ``n`` bytes of what was produced, each line ended by a newline;
    ``received`` holds the stream of each partition.
    """
    expected_hash, actual_hash = hashlib.sha256(), hashlib.sha256()
    difference = None
    position = 0
    for piece in plan.pieces:
        for size in _blocks(piece.size):
            expected, actual = sent(size), received[piece.partition].read(size)
            expected_hash.update(expected)
            actual_hash.update(actual)
            if expected != actual and difference is None:
                at = position + _first_difference(expected, actual)
                difference = f"byte {at} of the file differs in partition {piece.partition}"
            position += size
    for partition, stream in enumerate(received):
        if stream.read(1) and difference is None:
            difference = f"partition {partition} holds more than was sent to it"
    return Comparison(expected_hash.hexdigest(), actual_hash.hexdigest(), difference)


def _blocks(size: int) -> list[int]:
    whole, rest = divmod(size, _BLOCK)
    return [_BLOCK] * whole + [rest] * bool(rest)


def _first_difference(expected: bytes, actual: bytes) -> int:
    for index, (left, right) in enumerate(zip(expected, actual, strict=False)):
        if left != right:
            return index
    return min(len(expected), len(actual))
