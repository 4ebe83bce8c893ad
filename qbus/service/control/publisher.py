"""Publishing the status of a daemon in an ephemeral node."""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from qbus.metadata import (
    Create,
    Delete,
    MetadataStore,
    NodeError,
    NodeExists,
    SessionState,
    Set,
    StoreError,
)
from qbus.service.status import TIME, encode

_log = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_UNCHANGED_S = 30.0
"""How long an unchanged status stays, before its time is updated."""


class Publisher:
    """Publishes the status of one daemon through one session."""

    def __init__(
        self, store: MetadataStore, path: str, status: Callable[[], dict[str, Any]]
    ) -> None:
        """``status`` makes the document; its ``instance`` is unique to this process."""
        self._store = store
        self._path = path
        self._status = status
        self._version: int | None = None
        self._written: dict[str, Any] = {}
        self._is_refused = False

    async def run(self) -> None:
        """Publish until cancelled, or until the session is lost."""
        while self._store.state is not SessionState.LOST:
            try:
                await self.publish()
            except StoreError as error:
                _log.warning("the status cannot be published: %s", error)
            await asyncio.sleep(_INTERVAL_S)

    async def publish(self) -> None:
        """Write the status if there is anything new in it; raises StoreError."""
        document = self._status()
        if self._version is not None and not self._is_news(document):
            return
        data = encode(document)
        if self._version is None:
            await self._create(data, document["instance"])
        else:
            try:
                (version,) = await self._store.transaction([Set(self._path, data, self._version)])
            except NodeError:  # it was deleted, or replaced by a namesake
                self._version = None
                await self._create(data, document["instance"])
            else:
                assert isinstance(version, int)
                self._version = version
        self._written = document

    def _is_news(self, document: dict[str, Any]) -> bool:
        before = self._written
        age_s = (document[TIME] - before[TIME]) / 1000
        return age_s >= _UNCHANGED_S or {**before, TIME: 0} != {**document, TIME: 0}

    async def _create(self, data: bytes, instance: str) -> None:
        try:
            await self._store.transaction([Create(self._path, data, ephemeral=True)])
        except NodeExists:
            if not await self._replace(data, instance):
                return
        self._version = 0
        self._is_refused = False

    async def _replace(self, data: bytes, instance: str) -> bool:
        """Replace the node if an earlier session of this process left it; return whether it did."""
        node = await self._store.get(self._path)
        if node is None:
            return False  # retried at the next interval
        if _instance_of(node.data) != instance:
            if not self._is_refused:
                _log.warning(
                    "%s exists: another process has this name, or had it a moment ago", self._path
                )
                self._is_refused = True
            return False
        await self._store.transaction(
            [Delete(self._path, node.version), Create(self._path, data, ephemeral=True)]
        )
        return True


def _instance_of(data: bytes) -> object:
    try:
        return json.loads(data)["instance"]
    except (ValueError, KeyError, TypeError):
        return None
