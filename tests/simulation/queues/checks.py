"""What must hold of a queue, whatever happens."""

from collections import Counter


class ViolationError(AssertionError):
    """A promise was broken."""


class Checks:
    """Follows records by their ids, and raises ViolationError when a promise is broken.

    ``committed``: below the high watermark. ``finished``: somebody asked for that, or the limit of
    deliveries does. ``acknowledged``: and was told that it is done.
    """

    def __init__(self) -> None:
        self.committed: set[int] = set()
        self.finished: set[int] = set()
        self.acknowledged: set[int] = set()
        self.taken: Counter[int] = Counter()
        self.returned: Counter[int] = Counter()  # returns whose answers came
        self.at_most_once: Counter[int] = Counter()
        self.holders: dict[int, tuple[str, int]] = {}  # member and end of the lock
        self.forgotten: set[tuple[str, int]] = set()  # what members say nothing of any more
        self.counted: dict[int, int] = {}  # deliveries that this leader said last
        self.failovers = 0

    def new_leader(self) -> None:
        """Another one leads: it gives out again what is not done."""
        self.failovers += 1
        self.holders.clear()
        self.forgotten.clear()
        self.counted.clear()

    def given(self, record: int, member: str, now_ms: int, until_ms: int, deliveries: int) -> None:
        """A member got a record."""
        if record not in self.committed:
            raise ViolationError(f"{record} is given out before it is committed")
        if record in self.acknowledged:
            raise ViolationError(f"{record} is given out, and was acknowledged")
        holder, until = self.holders.get(record, ("", 0))
        if until > now_ms:
            raise ViolationError(f"{record} is given to {member}, and {holder} has it")
        self.taken[record] += 1
        least = self.returned[record] + 1
        if not least <= deliveries <= self.taken[record]:
            raise ViolationError(
                f"{record} is given out for the {deliveries}th time, not the {least}th, or up to"
                f" the {self.taken[record]}th"
            )
        before = self.counted.get(record)
        if before is not None and deliveries != before + 1:
            raise ViolationError(f"{record}: delivery {deliveries} comes after {before}")
        self.counted[record] = deliveries
        self.holders[record] = (member, until_ms)
        self.forgotten.discard((member, record))

    def given_once(self, record: int) -> None:
        """A member got a record at most once."""
        self.at_most_once[record] += 1
        if self.at_most_once[record] > 1:
            raise ViolationError(f"{record} is given out twice")

    def accepted_from(self, record: int, member: str) -> None:
        """The leader takes an acknowledgement of ``member``."""
        holder, _ = self.holders.get(record, ("", 0))
        if holder != member:
            raise ViolationError(f"{record} is acknowledged by {member}, and {holder} has it")

    def let_go(self, record: int) -> None:
        """Nobody has a record any more."""
        self.holders.pop(record, None)

    def forget(self, member: str, records: list[int]) -> None:
        """A member hears that it does not have all of these: it says nothing more of them."""
        self.forgotten.update((member, record) for record in records)

    def all_before(self, records: list[int]) -> None:
        """The group's start is behind these records."""
        for record in records:
            if record not in self.finished:
                raise ViolationError(f"the start is behind {record}, which nobody has done")

    def nothing_between(self, ranges: int) -> None:
        """All is done: so the start is behind all."""
        if ranges:
            raise ViolationError(f"the start stays before {ranges} ranges that are done")

    def at_the_end(self) -> None:
        """All members took all they could get, and did it."""
        lost = self.committed - self.finished
        if lost:
            raise ViolationError(f"{sorted(lost)} were never done")
