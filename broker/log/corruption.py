"""What is wrong with a log's data, for those who must hear of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Corruption:
    """Where a batch should be and is not: file, position in it, the batch's offset, the problem."""

    path: str
    position: int
    offset: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path} at {self.position} (offset {self.offset}): {self.problem}"
