"""Reads and writes a query's manifests in the staging topic, and its bookmark in a group."""

import asyncio
from collections.abc import Mapping

from qbus.records import Compression, decode_records, encode_records

from ...batches import read_batches, store_batches
from ...committed import commit, fetch_committed
from ...net.cluster import Cluster
from ...offsets import list_offsets
from ...types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition
from ..options import OptionError
from .history import Bookmark, History
from .manifest import Assembler, Manifest, split
from .rows import now_ms
from .topics import MANIFESTS

GROUP_PREFIX = "qbus-spark-"


class Ledger:
    """The manifests and the bookmark of one query.

    The methods raise :class:`~qbus.errors.ApiError`,
    :class:`~qbus.clients.spark.sink.history.StagingLost` and
    :class:`~qbus.clients.spark.sink.manifest.UnreadableManifest`.
    """

    def __init__(self, cluster: Cluster, staging: str, query: str) -> None:
        self._cluster = cluster
        self._query = query
        self._where = TopicPartition(staging, MANIFESTS)
        self._group = f"{GROUP_PREFIX}{query}"
        self._assembler = Assembler(query)
        self._position = 0

    async def open(self) -> History:
        """Read the query's history up to now.

        The end of the log is read before the bookmark. If there is no bookmark, no driver had one
        when the log ended there, so no manifest of the query lies before that end.
        """
        starts, ends = await asyncio.gather(self._offset(EARLIEST), self._offset(LATEST))
        committed = await fetch_committed(self._cluster, self._group, None)
        found = committed.get(self._where)
        if found is None:
            self._check_new(committed)
            history = History(Bookmark(ends), starts, ends)
            await self.bookmark(history)
        else:
            history = History(Bookmark.of(found.offset, found.metadata), starts, ends)
        self._position = max(starts, history.bookmark.offset)
        await self._read(history, ends)
        history.check()
        return history

    async def append(self, manifest: Manifest, history: History) -> None:
        """Append ``manifest``, and read which one binds: it, or another one that came first.

        Parts that are stored twice do no harm, so that no producer id is needed.
        """
        for value, headers in split(manifest):
            batch = encode_records(
                [value],
                [self._query.encode()],
                [headers],
                base_timestamp=now_ms(),
                compression=Compression.GZIP,
            )
            await store_batches(self._cluster, {self._where: batch})
        await self._read(history, await self._offset(LATEST))

    async def bookmark(self, history: History) -> None:
        """Commit the query's bookmark."""
        mark = history.bookmark
        await commit(
            self._cluster, self._group, {self._where: OffsetAndMetadata(mark.offset, mark.metadata)}
        )

    async def _read(self, history: History, end: int) -> None:
        async for header, batch in read_batches(self._cluster, self._where, self._position, end):
            self._position = header.last_offset + 1
            for record in decode_records(batch, header, *self._where):
                found = self._assembler.take(record)
                if found is not None:
                    history.add(*found)

    async def _offset(self, time: int) -> int:
        return (await list_offsets(self._cluster, {self._where: time}))[self._where].offset

    def _check_new(self, committed: Mapping[TopicPartition, object]) -> None:
        others = sorted({where.topic for where in committed} - {self._where.topic})
        if others:
            raise OptionError(
                "qbus.staging.topic",
                self._where.topic,
                f"the query's manifests are in {', '.join(others)}: name that topic",
            )
