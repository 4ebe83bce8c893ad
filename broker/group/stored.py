"""What the store holds of one group, and the transaction that makes it hold something else."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from qbus.consumer_protocol import CONSUMER, decode_assignment
from qbus.errors import WireError
from qbus.metadata import Check, Create, Delete, Op, Set

from .image import GroupImage
from .layout import (
    GroupPaths,
    commit_path,
    encode_commit,
    encode_group,
    encode_member,
    encode_offset,
)
from .offsets import Offset, TopicPartition

MAX_OPS: Final = 1_000  # of a transaction
_MAX_BYTES: Final = 800_000  # of its paths and data; ZooKeeper takes 1 MiB with all around them
_MAX_OWNERS: Final = 10_000  # of a group; more are not written down for people to read


@dataclass(slots=True)
class Change:
    """What a group wants stored.

    ``image`` with the time at which the group entered its state, if it changed; offsets to commit,
    or None to delete one; or the group to be removed whole.
    """

    image: GroupImage | None = None
    since_ms: int = 0
    offsets: dict[TopicPartition, Offset | None] = field(default_factory=dict)
    remove: bool = False


class StoredGroup:
    """A mirror of one group's znodes, kept up to date with each transaction that succeeds.

    ``fence`` is what this mirror's owner goes by.
    """

    def __init__(self, group_id: str) -> None:
        self.paths = GroupPaths(group_id)
        self.version: int | None = None  # of the group's node; None while there is none
        self.fence = _new_fence()
        self.members: dict[str, bytes] = {}
        self.owners: dict[str, dict[int, str]] = {}
        self.offsets: dict[str, dict[int, Offset]] = {}

    def plan(self, change: Change) -> list[list[Op]]:
        """The transactions for a change: one, unless it is too large.

        A group and its members change in one; what does not fit beside them follows or, when the
        group is removed, precedes. Each checks that nobody else has taken the group over meanwhile.
        """
        if change.remove:
            return self._plan_removal()
        group, rest = self._plan_group(change), list[Op]()
        if change.image is not None:
            group += self._plan_members(_members_of(change.image))
            rest += self._plan_owners(_owners_of(change.image))
        for topic, partitions in _by_topic(change.offsets).items():
            rest += self._plan_offsets(topic, partitions)
        if _fit(group + rest):
            return [group + rest]
        return [group, *_fenced(self._check, rest)]

    def apply(self, change: Change) -> None:
        """The transaction for this change succeeded."""
        if change.remove:
            self.version = None
            self.fence = _new_fence()
            self.members, self.owners, self.offsets = {}, {}, {}
            return
        if change.image is not None:
            self.version = 0 if self.version is None else self.version + 1
            self.members = _members_of(change.image)
            self.owners = _owners_of(change.image)
        for (topic, partition), offset in change.offsets.items():
            if offset is not None:
                self.offsets.setdefault(topic, {})[partition] = offset
            elif topic in self.offsets:
                self.offsets[topic].pop(partition, None)
                if not self.offsets[topic]:
                    del self.offsets[topic]

    @property
    def _fence(self) -> str:
        return self.paths.fence(self.fence)

    @property
    def _check(self) -> Check:
        return Check(self._fence)

    def _plan_group(self, change: Change) -> list[Op]:
        paths, image = self.paths, change.image
        if image is None:
            assert self.version is not None, "a group that is not stored needs an image"
            return [self._check]
        data = encode_group(image, change.since_ms, self.fence)
        if self.version is not None:
            return [self._check, Set(paths.group, data, self.version)]
        below = (self._fence, paths.ids, paths.owners, paths.offsets)
        return [Create(paths.group, data), *map(Create, below)]

    def _plan_members(self, members: Mapping[str, bytes]) -> list[Op]:
        ops: list[Op] = [
            Delete(self.paths.member(member_id))
            for member_id in self.members
            if member_id not in members
        ]
        for member_id, data in members.items():
            if member_id not in self.members:
                ops.append(Create(self.paths.member(member_id), data))
            elif data != self.members[member_id]:
                ops.append(Set(self.paths.member(member_id), data))
        return ops

    def _plan_owners(self, owners: Mapping[str, Mapping[int, str]]) -> list[Op]:
        ops: list[Op] = []
        for topic in {**self.owners, **owners}:
            old, new = self.owners.get(topic, {}), owners.get(topic, {})
            folder = self.paths.owned_topic(topic)
            if not old:
                ops.append(Create(folder, b""))
            ops += [Delete(f"{folder}/{partition}") for partition in old if partition not in new]
            for partition, member_id in new.items():
                if partition not in old:
                    ops.append(Create(f"{folder}/{partition}", member_id.encode()))
                elif old[partition] != member_id:
                    ops.append(Set(f"{folder}/{partition}", member_id.encode()))
            if not new:
                ops.append(Delete(folder))
        return ops

    def _plan_offsets(self, topic: str, partitions: Mapping[int, Offset | None]) -> list[Op]:
        old = self.offsets.get(topic, {})
        folder = self.paths.committed_topic(topic)
        ops: list[Op] = []
        left = set(old)
        for partition, offset in partitions.items():
            path = f"{folder}/{partition}"
            if offset is None and partition in old:
                left.discard(partition)
                ops += [Delete(commit_path(path)), Delete(path)]
            elif offset is not None:
                left.add(partition)
                ops += _plan_offset(path, old.get(partition), offset)
        if not old and left:
            ops.insert(0, Create(folder, b""))
        if old and not left:
            ops.append(Delete(folder))
        return ops

    def _plan_removal(self) -> list[list[Op]]:
        if self.version is None:
            return []
        content = self._plan_owners({})
        for topic, partitions in self.offsets.items():
            content += self._plan_offsets(topic, dict.fromkeys(partitions))
        folders = (self.paths.ids, self.paths.owners, self.paths.offsets)
        group: list[Op] = [Delete(self._fence), *self._plan_members({}), *map(Delete, folders)]
        group.append(Delete(self.paths.group, self.version))
        if _fit(group + content):
            return [content + group]
        return [*_fenced(self._check, content), group]


def _new_fence() -> str:
    return uuid4().hex


def _fit(ops: list[Op]) -> bool:
    return len(ops) <= MAX_OPS and sum(map(_size, ops)) <= _MAX_BYTES


def _size(op: Op) -> int:
    return len(op.path) + (len(op.data) if isinstance(op, Create | Set) else 0)


def _fenced(fence: Op, ops: list[Op]) -> list[list[Op]]:
    parts: list[list[Op]] = []
    size = _MAX_BYTES
    for op in ops:
        size += _size(op)
        if size > _MAX_BYTES or len(parts[-1]) == MAX_OPS:
            parts.append([fence])
            size = _size(fence) + _size(op)
        parts[-1].append(op)
    return parts


def _plan_offset(path: str, old: Offset | None, new: Offset) -> list[Op]:
    if old is None:
        return [
            Create(path, encode_offset(new)),
            Create(commit_path(path), encode_commit(new)),
        ]
    ops: list[Op] = []
    if old.offset != new.offset:
        ops.append(Set(path, encode_offset(new)))
    if old[1:] != new[1:]:
        ops.append(Set(commit_path(path), encode_commit(new)))
    return ops


def _by_topic(
    offsets: Mapping[TopicPartition, Offset | None],
) -> dict[str, dict[int, Offset | None]]:
    topics: dict[str, dict[int, Offset | None]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[partition] = offset
    return topics


def _members_of(image: GroupImage) -> dict[str, bytes]:
    return {member.member_id: encode_member(member) for member in image.members}


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment; none if it is illegible, because clients wrote it."""
    try:
        return decode_assignment(assignment)
    except WireError:
        return ()


def _owners_of(image: GroupImage) -> dict[str, dict[int, str]]:
    if image.protocol_type != CONSUMER:
        return {}
    owned = [
        (topic, partition, member.member_id)
        for member in image.members
        for topic, partition in _assigned(member.assignment)
    ]
    return _owners(owned) if len(owned) <= _MAX_OWNERS else {}


def _owners(owned: Iterable[tuple[str, int, str]]) -> dict[str, dict[int, str]]:
    owners: dict[str, dict[int, str]] = {}
    for topic, partition, member_id in owned:
        owners.setdefault(topic, {})[partition] = member_id
    return owners
