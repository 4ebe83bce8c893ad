"""The reports of the members of a group, checked as they come in."""

from collections import defaultdict
from collections.abc import Mapping

Report = tuple[str, list[int]]
"""``owns``: generation, partition...; ``saw``: partition, offset; ``committed``: both, too."""


class Chronicle:
    """The reports of all members of one group that reads one topic, checked as they come in."""

    def __init__(self) -> None:
        self.owners: dict[tuple[int, int], str] = {}
        """Who owned a partition, by generation and partition."""
        self.seen: defaultdict[int, set[int]] = defaultdict(set)
        self.commits: defaultdict[int, int] = defaultdict(int)
        """The highest offset of each partition whose commit the coordinator acknowledged."""
        self.generations: set[int] = set()
        self.wrong: list[str] = []

    def note(self, member: str, report: Report) -> None:
        """Take in one report."""
        kind, numbers = report
        if kind == "owns":
            self._note_owner(member, *numbers)
        elif kind == "saw":
            partition, offset = numbers
            self.seen[partition].add(offset)
        else:
            partition, offset = numbers
            self.commits[partition] = max(self.commits[partition], offset)

    def _note_owner(self, member: str, generation: int, *partitions: int) -> None:
        self.generations.add(generation)
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), member)
            if owner != member:
                self.wrong.append(
                    f"partition {partition} has owners {owner} and {member} in {generation}"
                )

    def check_committed(self, floor: Mapping[int, int], committed: Mapping[int, int]) -> None:
        """Check that no committed offset is below ``floor``, which was acknowledged before."""
        for partition, offset in floor.items():
            if committed.get(partition, 0) < offset:
                self.wrong.append(
                    f"partition {partition} went back from {offset} to {committed.get(partition)}"
                )

    def check_covered(self, committed: Mapping[int, int]) -> None:
        """Check that some member has seen every record below a committed offset."""
        for partition, offset in committed.items():
            if missing := set(range(offset)) - self.seen[partition]:
                self.wrong.append(f"partition {partition}: {offset} committed without {missing}")

    def count(self) -> int:
        """The number of different records."""
        return sum(map(len, self.seen.values()))
