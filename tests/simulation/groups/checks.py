"""The invariants that hold whatever fails."""

import json
from collections.abc import Mapping

from qbus.broker.group.requests import JoinResult
from qbus.metadata import Node


class ViolationError(AssertionError):
    """A promise was broken."""


class Checks:
    """Checks every stored state and every answer to members."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.commits = 0
        self.generations: dict[tuple[str, int], tuple[str | None, str]] = {}
        self.members: dict[tuple[str, int], tuple[str, ...]] = {}
        self.owners: dict[tuple[str, int, int], str] = {}

    def stored(self, before: Mapping[str, Node], after: Mapping[str, Node]) -> None:
        """Check that neither offsets nor generations go back in a transaction."""
        for path, node in before.items():
            now = after.get(path)
            if now is None or now.data == node.data:
                continue
            if path.rpartition("/")[2].isdecimal() and "/offsets/" in path:
                _expect(
                    int(now.data) >= int(node.data), f"{path}: {now.data!r} after {node.data!r}"
                )
            elif path.count("/") == 2:
                old, new = (json.loads(n.data)["generation"] for n in (node, now))
                _expect(new >= old, f"{path}: generation {new} after {old}")

    def committed(self, group: str, partition: int, offset: int, stored: int) -> None:
        """Check a commit that was acknowledged to a member."""
        key = group, partition
        self.commits += 1
        _expect(stored >= offset, f"{key}: {offset} is acknowledged, {stored} is stored")
        self.acknowledged[key] = max(self.acknowledged.get(key, 0), offset)

    def fetched(self, group: str, partition: int, offset: int, known: int) -> None:
        """Check a fetched offset; ``known`` was acknowledged before the request."""
        _expect(offset >= known, f"{group}-{partition}: to go on at {offset}, after {known}")

    def joined(self, group: str, told: JoinResult) -> None:
        """Check that all members are told the same of a generation."""
        key = group, told.generation
        is_same = self.generations.setdefault(key, (told.protocol, told.leader))
        _expect(is_same == (told.protocol, told.leader), f"{key}: {told} beside {is_same}")
        if told.members:
            members = tuple(sorted(member.member_id for member in told.members))
            known = self.members.setdefault(key, members)
            _expect(known == members, f"{key}: {members} beside {known}")

    def assigned(self, group: str, generation: int, member: str, partitions: list[int]) -> None:
        """Check that no other member has these partitions in this generation."""
        for partition in partitions:
            owner = self.owners.setdefault((group, generation, partition), member)
            _expect(owner == member, f"{group}-{partition} in {generation}: {member} and {owner}")


def _expect(is_true: bool, message: str) -> None:
    if not is_true:
        raise ViolationError(message)
