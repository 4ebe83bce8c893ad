"""Loads groups from the store, and repairs what does not belong there.

Another broker may still have the group in memory: one that was paused, or has not heard of a change
in the cluster. Every write to a group checks its fence, so loading replaces the fence before it
reads anything else. Everything the other broker stored came before that and is read after it; its
later writes fail.

A server of the ensemble may lag behind, so a read may miss a node that exists. Transactions do not
lag: a transaction, not a read, tells that a group does not exist.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from qbus.clock import Clock
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
from qbus.names import escape, unescape

from ..metadata.image import Topic
from .group import EMPTY_IMAGE, GroupImage
from .offsets import Offsets, PresentOffsets, TopicPartition
from .timers import STORE_TIMEOUT_S, Timers
from .znodes import (
    ROOT,
    GroupChange,
    GroupZnodes,
    MalformedGroupError,
    OffsetsLayout,
    commit_path,
    decode_group,
    decode_member,
    decode_offset,
    decode_pending,
    decode_producer,
    decode_topic,
    encode_commit,
    with_fence,
)

_log = logging.getLogger(__name__)

Topics = Mapping[str, Topic]

_ATTEMPTS: Final = 5  # to write a group's node before another broker does
_NO_GROUP: Final = f"{ROOT}/%"  # no name is escaped so


class GroupLoader:
    """Reads groups from the store; ``topics`` are the topics that exist now."""

    def __init__(
        self,
        store: MetadataStore,
        topics: Topics,
        layout: OffsetsLayout = OffsetsLayout.PARTITION,
        guards: Callable[[], list[Op]] = list,
    ) -> None:
        """``layout``: how the offsets of loaded groups are to be stored.

        ``guards``: what is checked in the transaction that takes a group's fence.
        """
        self._guards = guards
        self._store = store
        self._topics = topics
        self._layout = layout

    async def group_ids(self) -> list[str]:
        """Return the ids of all groups in the store; other nodes are skipped."""
        found = []
        for name in await self._store.children(ROOT):
            try:
                found.append(unescape(name))
            except ValueError:
                continue
        return found

    async def not_stored(self, group_ids: Iterable[str]) -> frozenset[str]:
        """Return which groups the store does not have: none is left out that was written before.

        Raises:
            StoreError: it cannot be read, or a guard does not hold.
        """
        with suppress(NoNode):
            await self._store.transaction([*self._guards(), Check(_NO_GROUP)])
        stored = frozenset(await self._store.children(ROOT))
        return frozenset(one for one in group_ids if escape(one) not in stored)

    async def load(self, group_id: str, now_ms: int) -> tuple[GroupZnodes, GroupImage, int]:
        """Load a group, or an empty one that is not stored, and when it entered its state.

        From now on no broker that loaded it before can write it.

        Raises:
            MalformedGroupError: the node does not hold a group.
            ApiError: NOT_COORDINATOR, another broker loads it at the same time.
        """
        znodes = GroupZnodes(group_id, self._layout)
        znodes.version = await self._fence(znodes)
        if znodes.version is None:
            return znodes, EMPTY_IMAGE, now_ms
        tree = await self._store.tree(znodes.paths.group)
        node = tree.pop(znodes.paths.group, None)
        if node is None or node.version != znodes.version:
            raise _taken(group_id)
        below = {path[len(znodes.paths.group) + 1 :]: node.data for path, node in tree.items()}
        repairs = _read(znodes, below, now_ms) + self._drop_stale(znodes)
        if repairs:
            fence = Check(znodes.paths.fence(znodes.fence))
            await self._store.transaction([fence, *repairs])
        members = [decode_member(member_id, data) for member_id, data in znodes.members.items()]
        image, since_ms = decode_group(node.data, tuple(members))
        return znodes, image, since_ms

    async def _fence(self, znodes: GroupZnodes) -> int | None:
        """Replace a group's fence; return the version of its node, or None if it does not exist.

        The node that was read may be outdated and belong to a deleted group of the same name; then
        its version or its fence no longer exists.
        """
        path = znodes.paths.group
        for _ in range(_ATTEMPTS):
            node = await self._store.get(path)
            try:
                if node is None:
                    await self._store.transaction([*self._guards(), Check(path)])
                else:
                    data, former = with_fence(node.data, znodes.fence)
                    ops: list[Op] = [*self._guards(), Set(path, data, node.version)]
                    if former is not None:
                        ops.append(Delete(znodes.paths.fence(former)))
                    ops.append(Create(znodes.paths.fence(znodes.fence)))
                    await self._store.transaction(ops)
                    return node.version + 1
            except NoNode:
                if node is None:
                    return None
            except VersionConflict:
                continue
        raise _taken(path)

    def _drop_stale(self, znodes: GroupZnodes) -> list[Op]:
        """Plan to delete offsets of deleted topics whose names belong to other topics now."""
        stale = self.stale(znodes.offsets)
        change = GroupChange(offsets=dict.fromkeys(stale))
        plan = znodes.plan(change)
        znodes.apply(change)
        return [operation for operations in plan for operation in operations] if stale else []

    def stale(self, offsets: Offsets) -> list[TopicPartition]:
        """For which partitions there are offsets of deleted topics whose names others have now."""
        return PresentOffsets(offsets, self._topics, {}).stale()


def _taken(what: str) -> ApiError:
    return ApiError(ErrorCode.NOT_COORDINATOR, f"another broker is loading {what}")


def _read(znodes: GroupZnodes, below: dict[str, bytes], now_ms: int) -> list[Op]:
    """Fill in what is below a group's node; return the repairs to write."""
    repairs: list[Op] = []
    try:
        for path, data in below.items():
            match path.split("/"):
                case ["ids", member_id]:
                    znodes.members[unescape(member_id)] = data
                case ["owners", topic, partition]:
                    owners = znodes.owners.setdefault(unescape(topic), {})
                    owners[int(partition)] = data.decode()
                case ["consumer", *_]:
                    znodes.nodes[path] = data
                case ["offsets", *names]:
                    repairs += _read_offsets(znodes, below, path, names, now_ms)
                case ["pending", *names]:
                    znodes.has_pending_folder = True
                    if names:
                        znodes.pending[decode_producer(*names)] = decode_pending(data)
    except (ValueError, TypeError) as error:
        raise MalformedGroupError(f"{path}: {error}") from error
    return repairs


def _read_offsets(
    znodes: GroupZnodes, below: dict[str, bytes], path: str, names: list[str], now_ms: int
) -> list[Op]:
    """Fill in what a node below the offsets' folder has; return the repairs to write."""
    data, commit = below[path], below.get(commit_path(path))
    full = f"{znodes.paths.group}/{path}"
    match names:
        case [topic] if data:
            znodes.offsets[unescape(topic)] = decode_topic(data)
            znodes.shared.add(unescape(topic))
        case [topic, _] if below.get(f"offsets/{topic}"):  # all of them are there
            stale = [full] if commit is None else [commit_path(full), full]
            return [Delete(one) for one in stale]
        case [topic, partition]:
            offset = decode_offset(data, commit, now_ms)
            znodes.offsets.setdefault(unescape(topic), {})[int(partition)] = offset
            if commit is None:  # an offset written by hand
                return [Create(commit_path(full), encode_commit(offset))]
    return []


class StoreWait:
    """Waits for tasks that read the store, for a limited time; the tasks themselves continue."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers

    async def wait_for(self, task: asyncio.Task[Any]) -> Any:
        """Return the result of ``task``.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS, it takes longer; COORDINATOR_NOT_AVAILABLE, it
                failed; UNKNOWN_SERVER_ERROR, the node is malformed; or what the task raised.
        """
        enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        deadline = self._clock.monotonic() + STORE_TIMEOUT_S
        timer = self._timers.call_at(deadline, partial(_end, enough))
        try:
            await asyncio.wait({task, enough}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if not task.done():
            task.add_done_callback(_log_failure)  # its failure may have no other witness
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if task.cancelled():
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is shutting down")
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, ApiError):
            raise ApiError(error.code, str(error))
        _log_failure(task)
        if isinstance(error, MalformedGroupError):
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "cannot read the group's state")


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("cannot %s: %s", task.get_name(), error)


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
