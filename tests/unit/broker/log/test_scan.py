"""The walk over batches reads ahead in chunks, but not beyond what is wanted."""

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from qbus.broker.log.files import OsFile
from qbus.broker.log.scan import BadBatch, PlacedBatch, scan
from tests.support.logs import batch

MIB = 1 << 20


class CountedFile(OsFile):
    """Batches with values of these sizes; ``reads`` are the lengths of all reads."""

    def __init__(self, path: Path, sizes: list[int]) -> None:
        batches = [bytes(batch(b"x" * size)) for size in sizes]
        path.write_bytes(b"".join(n.to_bytes(8) + one[8:] for n, one in enumerate(batches)))
        super().__init__(os.open(path, os.O_RDWR))
        self.reads: list[int] = []

    def read_at(self, position: int, length: int, *, wait: bool = True) -> bytes:
        self.reads.append(length)
        return super().read_at(position, length, wait=wait)


Write = Callable[[list[int]], CountedFile]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return partial(CountedFile, tmp_path / "log")


def up_to(file: CountedFile, start: PlacedBatch | None, wanted: int) -> PlacedBatch:
    """Check what follows ``start``, up to the batch that reaches the position ``wanted``."""
    position, offset = (0, 0) if start is None else (start.end, start.next_offset)
    for placed in scan(file, position, file.size(), offset, wanted_end=wanted):
        if placed.end >= wanted:
            break
    return placed


@pytest.mark.parametrize("seed", range(5))
def test_a_piece_is_read_once_and_nothing_else(write: Write, seed: int) -> None:
    rng = random.Random(seed)
    file = write([rng.choice((1, 50, 3000, 40_000, 90_000)) for _ in range(60)])
    at = None
    while at is None or at.end < file.size():
        file.reads.clear()
        begun = 0 if at is None else at.end
        at = up_to(file, at, min(begun + 32 * 1024, file.size()))
        assert sum(file.reads) == at.end - begun
        assert len(file.reads) <= 3, "the piece, and of the last batch its header and the rest"
    assert at.next_offset == 60


def test_everything_is_read_in_large_chunks(write: Write) -> None:
    file = write([30_000] * 100)
    assert len(list(scan(file, 0, file.size(), 0))) == 100
    assert len(file.reads) == 3
    assert max(file.reads) == MIB


def test_headers_alone_are_read_in_small_ones(write: Write) -> None:
    file = write([30_000] * 100)
    assert len(list(scan(file, 0, file.size(), 0, crc=False))) == 100
    assert max(file.reads) == 1 << 16


def test_a_batch_that_ends_behind_the_file_is_bad_wherever_the_piece_ends(write: Write) -> None:
    file = write([100, 5000])
    end = file.size() - 10
    with pytest.raises(BadBatch, match="is cut at"):
        list(scan(file, 0, end, 0, wanted_end=300))


def test_damage_in_what_was_read_in_two_parts_is_found(write: Write) -> None:
    file = write([100, 50_000])
    file.write_at(file.size() - 1, b"y")
    found = scan(file, 0, file.size(), 0, wanted_end=1000)
    assert next(found).position == 0
    with pytest.raises(BadBatch, match="CRC") as caught:
        next(found)
    assert caught.value.offset == 1
