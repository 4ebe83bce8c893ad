"""Moves a group's offsets between the metadata store and the log, while the group is loaded.

Nobody is answered while a group is loaded, and its fence keeps former coordinators from writing to
the store: so what is moved is all that was acknowledged, and nothing is committed meanwhile. First
the offsets are written to their new place, then they are deleted from the old one; where a crash
comes between, the next load does both again, before anything else can be committed.

The storage may change while a group is loaded. What is in the store goes from there only as long as
the storage is still the log: else it could have been said already that nothing is left in the log.
"""

from collections.abc import Sequence
from typing import NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import MetadataStore, Op

from .group import EMPTY_IMAGE
from .leadership import Leadership
from .offset_log import OffsetLog
from .offsets import Offset, Offsets, TopicPartition
from .storage import OffsetsStorage, Storage
from .znodes import GroupChange, GroupZnodes


class OffsetHomes(NamedTuple):
    """Where offsets can be: in the log, where there is one, and what the cluster wants.

    ``leadership`` tells whether the log is led here.
    """

    log: OffsetLog
    storage: OffsetsStorage
    leadership: Leadership


async def move_in(
    store: MetadataStore, homes: OffsetHomes, group_id: str, znodes: GroupZnodes, now_ms: int
) -> bool:
    """Move a loaded group's offsets to where they belong; return whether that is the log.

    On the way back to the store they stay in the log for as long as a transaction there may bring
    more of them.

    Raises:
        ApiError: the log does not take or give them now.
        StoreError: the store does not.
    """
    storage, log = homes.storage.current, homes.log
    if storage is Storage.LOG:
        await _to_log(store, log, group_id, znodes, homes.storage.guards)
        return True
    if storage is Storage.RETURNING and log.has(group_id):
        if log.unstable(group_id):
            return True
        await _to_store(store, log, group_id, znodes, now_ms)
    return False


async def _to_log(
    store: MetadataStore, log: OffsetLog, group_id: str, znodes: GroupZnodes, guards: Sequence[Op]
) -> None:
    offsets = _flat(znodes.offsets)
    if not offsets:
        return
    _check(await log.save(group_id, offsets))
    await _change(store, znodes, GroupChange(offsets=dict.fromkeys(offsets)), guards)


async def _to_store(
    store: MetadataStore, log: OffsetLog, group_id: str, znodes: GroupZnodes, now_ms: int
) -> None:
    offsets = _flat((await log.read(group_id, has_stale=True)).offsets)
    image = EMPTY_IMAGE if znodes.version is None else None
    await _change(store, znodes, GroupChange(image, since_ms=now_ms, offsets=dict(offsets)))
    _check(await log.save(group_id, dict.fromkeys(offsets)))


async def _change(
    store: MetadataStore, znodes: GroupZnodes, change: GroupChange, guards: Sequence[Op] = ()
) -> None:
    for operations in znodes.plan(change):
        await store.transaction([*guards, *operations])
    znodes.apply(change)


def _flat(offsets: Offsets) -> dict[TopicPartition, Offset | None]:
    return {
        (topic, partition): offset
        for topic, some in offsets.items()
        for partition, offset in some.items()
    }


def _check(error: ErrorCode) -> None:
    if error:
        raise ApiError(error)
