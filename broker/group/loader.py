"""Takes groups over from the store, and sets right what does not belong there.

Another broker may have the group in memory still: one that was stopped for a while, or has not
heard yet of who came and went. Every write to a group checks its fence, so before anything else is
read, that is replaced by one of our own. Whatever the other one has stored was stored before that
and is read after it; whatever it tries from then on fails.

A server of the store may lag behind, so that what a read does not show may be there all the same.
Writes do not lag: that there is no such group is what a transaction says, not a read.
"""

from collections.abc import Mapping
from typing import Final

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import (
    Check,
    Create,
    Delete,
    MetadataStore,
    NoNode,
    Op,
    Set,
    VersionConflict,
)
from qbus.names import unescape

from ..metadata.image import Topic
from .image import EMPTY_IMAGE, GroupImage
from .layout import (
    ROOT,
    MalformedGroupError,
    commit_path,
    decode_group,
    decode_member,
    decode_offset,
    encode_commit,
    with_fence,
)
from .offsets import NO_TOPIC_ID, Offset, TopicPartition
from .stored import Change, StoredGroup

Topics = Mapping[str, Topic]

_ATTEMPTS: Final = 5  # to write a group's node before somebody else does


class Loader:
    """Reads what is stored of groups; ``topics`` are those that exist now."""

    def __init__(self, store: MetadataStore, topics: Topics) -> None:
        self._store = store
        self._topics = topics

    async def group_ids(self) -> list[str]:
        """All groups of the store. What is no name of a group is none."""
        found = []
        for name in await self._store.children(ROOT):
            try:
                found.append(unescape(name))
            except ValueError:
                continue
        return found

    async def load(self, group_id: str, now_ms: int) -> tuple[StoredGroup, GroupImage, int]:
        """A group, or an empty one that is not stored, and when it entered its state.

        From now on nobody else who had loaded it can write it.

        Raises:
            MalformedGroupError: the store holds something else than a group there.
            ApiError: NOT_COORDINATOR, somebody else takes it over at the same time.
        """
        stored = StoredGroup(group_id)
        stored.version = await self._fence(stored)
        if stored.version is None:
            return stored, EMPTY_IMAGE, now_ms
        tree = await self._store.tree(stored.paths.group)
        node = tree.pop(stored.paths.group, None)
        if node is None or node.version != stored.version:
            raise _taken(group_id)
        below = {path[len(stored.paths.group) + 1 :]: node.data for path, node in tree.items()}
        repairs = _read(stored, below, now_ms) + self._drop_stale(stored)
        if repairs:
            fence = Check(stored.paths.fence(stored.fence))
            await self._store.transaction([fence, *repairs])
        members = [decode_member(member_id, data) for member_id, data in stored.members.items()]
        image, since_ms = decode_group(node.data, tuple(members))
        return stored, image, since_ms

    async def _fence(self, stored: StoredGroup) -> int | None:
        """Replace a group's fence; the version of its node then, or None: there is no such group.

        What was read may be of the past, and there another group of that name: then its version or
        its fence is not there any more.
        """
        path = stored.paths.group
        for _ in range(_ATTEMPTS):
            node = await self._store.get(path)
            try:
                if node is None:
                    await self._store.transaction([Check(path)])
                else:
                    data, former = with_fence(node.data, stored.fence)
                    ops: list[Op] = [Set(path, data, node.version)]
                    if former is not None:
                        ops.append(Delete(stored.paths.fence(former)))
                    ops.append(Create(stored.paths.fence(stored.fence)))
                    await self._store.transaction(ops)
                    return node.version + 1
            except NoNode:
                if node is None:
                    return None
            except VersionConflict:
                continue
        raise _taken(path)

    def _drop_stale(self, stored: StoredGroup) -> list[Op]:
        """Offsets of topics that were deleted while nobody watched, and whose names are taken."""
        stale: dict[TopicPartition, Offset | None] = {
            (topic, partition): None
            for topic, partitions in stored.offsets.items()
            for partition, offset in partitions.items()
            if self._is_stale(topic, offset)
        }
        change = Change(offsets=stale)
        plan = stored.plan(change)
        stored.apply(change)
        return [operation for operations in plan for operation in operations] if stale else []

    def _is_stale(self, topic: str, offset: Offset) -> bool:
        current = self._topics.get(topic)
        known = offset.topic_id != NO_TOPIC_ID
        return current is not None and known and current.id != offset.topic_id


def _taken(what: str) -> ApiError:
    return ApiError(ErrorCode.NOT_COORDINATOR, f"{what} is being taken over")


def _read(stored: StoredGroup, below: dict[str, bytes], now_ms: int) -> list[Op]:
    """Fill in what is below a group's node; what has to be set right."""
    repairs: list[Op] = []
    try:
        for path, data in below.items():
            match path.split("/"):
                case ["ids", member_id]:
                    stored.members[unescape(member_id)] = data
                case ["owners", topic, partition]:
                    owners = stored.owners.setdefault(unescape(topic), {})
                    owners[int(partition)] = data.decode()
                case ["offsets", topic, partition]:
                    commit = below.get(commit_path(path))
                    offset = decode_offset(data, commit, now_ms)
                    stored.offsets.setdefault(unescape(topic), {})[int(partition)] = offset
                    if commit is None:  # written by hand: from now on it is like the others
                        path = f"{stored.paths.group}/{path}"
                        repairs.append(Create(commit_path(path), encode_commit(offset)))
    except ValueError as error:
        raise MalformedGroupError(f"{path}: {error}") from error
    return repairs
