"""What was read of a file in one go."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .file import TailedFile


class Chunk(NamedTuple):
    """Records in a row of one file, from ``start`` up to ``end`` of it."""

    file: "TailedFile"
    incarnation: int
    start: int
    end: int
    tail: tuple[int, int]
    values: Sequence[bytes]
    offsets: Sequence[int] | None
