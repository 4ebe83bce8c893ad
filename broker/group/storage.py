"""Where the cluster keeps committed offsets: a node of the store that all brokers follow.

    /offsets_storage                  JSON: the storage in force
    /offsets_storage/returned-<n>     partition n of __consumer_offsets has nothing left to move

There are three storages:

- ``zookeeper``: offsets are nodes of the metadata store, and groups belong to brokers by
  :mod:`.ownership`.
- ``log``: offsets are records of ``__consumer_offsets``, and groups belong to the leaders of its
  partitions. Offsets that are still in the store are moved when their group is loaded.
- ``returning``, on the way from ``log`` to ``zookeeper``: commits go to the store, and groups still
  belong to the leaders of partitions, who move what is left in the log. When nothing is left in any
  partition, the storage becomes ``zookeeper``.

Brokers hear of a change at different times. Loading a group therefore checks the version of the
node in the same transaction in which it takes the group's fence: a broker that has not heard of a
change cannot load a group, and one that has loaded it before cannot write it any more once another
has. So each group changes its storage in one step: what was acknowledged before the step is moved,
and what comes after goes to the new place.
"""

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Final

from qbus.metadata import (
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeError,
    NodeExists,
    Op,
    Set,
)

_log = logging.getLogger(__name__)

PATH: Final = "/offsets_storage"
_VERSION: Final = 1
_RETURNED: Final = "returned-"


class Storage(Enum):
    """Where committed offsets are kept."""

    STORE = "zookeeper"
    LOG = "log"
    RETURNING = "returning"


class OffsetsStorage:
    """The storage in force, as this broker knows it. ``on_change`` is called when that changes."""

    def __init__(self, store: MetadataStore, on_change: Callable[[], None]) -> None:
        self._store = store
        self._on_change = on_change
        self._version: int | None = None
        self.current = Storage.STORE

    @property
    def guards(self) -> list[Op]:
        """What a transaction checks that depends on the storage in force."""
        return [] if self._version is None else [Check(PATH, self._version)]

    @property
    def is_by_log(self) -> bool:
        """Whether groups belong to the leaders of the partitions of ``__consumer_offsets``."""
        return self.current is not Storage.STORE

    async def start(self, initial: Storage) -> None:
        """Learn the storage in force; in a new cluster, it becomes ``initial``.

        Raises:
            StoreError: it cannot be read.
        """
        if not await self._read():
            with suppress(NodeExists):  # another broker was faster
                await self._store.transaction([Create(PATH, _encode(initial))])
            await self._read()

    async def look(self) -> None:
        """Learn whether the storage has changed. To be called often.

        Raises:
            StoreError: it cannot be read.
        """
        await self._read()

    async def switch(self, wanted: Storage) -> None:
        """Begin to keep offsets elsewhere: STORE or LOG."""
        if self._version is None or wanted is self.current:
            return
        if wanted is Storage.STORE:
            if self.current is Storage.RETURNING:
                return
            wanted = Storage.RETURNING
        try:
            returned = await self._returned()
            await self._store.transaction(
                [*self._forget(returned), Set(PATH, _encode(wanted), self._version)]
            )
        except NodeError:
            return  # somebody else was faster
        _log.info("committed offsets: %s", wanted.value)
        await self._read()

    async def has_returned(self, partition: int, count: int, leads: list[Op]) -> None:
        """A partition of ``count`` has nothing left to move; with the last, the return is over.

        ``leads`` check that the broker that says so leads the partition.
        """
        if self.current is not Storage.RETURNING:
            return
        try:
            returned = await self._returned()
            name = f"{_RETURNED}{partition}"
            if name not in returned:
                await self._store.transaction([*self.guards, *leads, Create(f"{PATH}/{name}")])
                returned = await self._returned()
            if len(returned) >= count:
                await self._end_return(returned)
        except NodeError:
            return  # somebody else was faster, or leads

    async def end_return(self) -> None:
        """There is no partition from which anything would have to be moved."""
        if self.current is Storage.RETURNING:
            with suppress(NodeError):  # somebody else was faster
                await self._end_return(await self._returned())

    async def _end_return(self, returned: list[str]) -> None:
        assert self._version is not None
        await self._store.transaction(
            [*self._forget(returned), Set(PATH, _encode(Storage.STORE), self._version)]
        )
        _log.info("committed offsets are in the metadata store again, all of them")
        await self._read()

    async def _returned(self) -> list[str]:
        children = await self._store.children(PATH)
        return [name for name in children if name.startswith(_RETURNED)]

    @staticmethod
    def _forget(returned: list[str]) -> list[Op]:
        return [Delete(f"{PATH}/{name}") for name in returned]

    async def _read(self) -> bool:
        """Read the node; return whether it exists."""
        node = await self._store.get(PATH)
        if node is None:
            return False
        former, self._version = self._version, node.version
        self.current = _decode(node.data)
        if former is not None and former != node.version:
            _log.info("committed offsets: %s", self.current.value)
            self._on_change()
        return True


def _encode(storage: Storage) -> bytes:
    fields = {"version": _VERSION, "storage": storage.value}
    return json.dumps(fields, separators=(",", ":")).encode()


def _decode(data: bytes) -> Storage:
    """Decode the node; anything else than a storage counts as STORE, and is logged."""
    try:
        return Storage(json.loads(data)["storage"])
    except (ValueError, KeyError, TypeError):
        _log.error("%s does not name a storage of offsets: %r", PATH, data[:200])
        return Storage.STORE
