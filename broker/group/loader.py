"""Reads groups from the store, and sets right what does not belong there."""

from collections.abc import Mapping

from qbus.metadata import Create, MetadataStore, Op
from qbus.names import unescape
from qbus.wire import ZERO_UUID

from ..metadata_image import Topic
from .image import EMPTY_IMAGE, GroupImage
from .layout import (
    ROOT,
    MalformedGroupError,
    commit_path,
    decode_group,
    decode_member,
    decode_offset,
    encode_commit,
)
from .offsets import Offset, TopicPartition
from .stored import Change, StoredGroup

Topics = Mapping[str, Topic]


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

        Raises:
            MalformedGroupError: the store holds something else than a group there.
        """
        stored = StoredGroup(group_id)
        tree = await self._store.tree(stored.paths.group)
        if not tree:
            return stored, EMPTY_IMAGE, now_ms
        node = tree.pop(stored.paths.group)
        stored.version = node.version
        below = {path[len(stored.paths.group) + 1 :]: node.data for path, node in tree.items()}
        repairs = _read(stored, below, now_ms) + self._drop_stale(stored)
        if repairs:
            await self._store.transaction(repairs)
        members = [decode_member(member_id, data) for member_id, data in stored.members.items()]
        image, since_ms = decode_group(node.data, tuple(members))
        return stored, image, since_ms

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
        known = offset.topic_id != ZERO_UUID
        return current is not None and known and current.id != offset.topic_id


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
