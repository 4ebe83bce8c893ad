"""Producer ids: numbers that no two producers ever share, handed out from blocks.

A broker reserves a block of ids at a time by compare-and-set on ``/producers/id_block`` and gives
them out from memory; what is left of a block when the broker stops is never used. The node holds
Kafka's JSON (``{"version": 1, "broker": 1, "block_start": "0", "block_end": "999"}``, both ends
inclusive).

A cluster's first id is a random one: mirrors keep the producer ids of batches, so those of another
cluster are in a log that a producer of this one may come to write to, and must not be taken for it.
"""

import asyncio
import json
import secrets

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Create, MetadataStore, NodeExists, Set, VersionConflict

PATH = "/producers/id_block"
BLOCK_SIZE = 1000
MAX_EPOCH = 2**15 - 2  # the last epoch that has a successor in 16 bits
MAX_PRODUCER_ID = 2**63 - 1

_RANGE_BITS = 32  # a cluster has that many ids before it comes to what may be another one's


def first_id() -> int:
    """Where a new cluster begins to count."""
    return secrets.randbits(62 - _RANGE_BITS) << _RANGE_BITS


class ProducerIds:
    """Gives out producer ids and epochs."""

    def __init__(self, store: MetadataStore, node_id: int) -> None:
        self._store = store
        self._node_id = node_id
        self._next = 0
        self._end = 0  # exclusive
        self._reserving = asyncio.Lock()

    async def allocate(self) -> int:
        """A producer id that was never given out before, here or by another broker."""
        async with self._reserving:
            if self._next == self._end:
                self._next, self._end = await self._reserve()
            self._next += 1
            return self._next - 1

    async def bump(self, producer_id: int, epoch: int) -> tuple[int, int]:
        """The identity after ``producer_id`` in ``epoch`` (KIP-360).

        The next epoch, from which on the broker refuses whatever is still under way in the old one;
        or a new id, where the epochs are used up or the id was never given out.
        """
        if epoch < MAX_EPOCH and await self._was_given_out(producer_id):
            return producer_id, epoch + 1
        return await self.allocate(), 0

    async def _was_given_out(self, producer_id: int) -> bool:
        unused = self._next
        if not self._end:
            node = await self._store.get(PATH)
            unused = 0 if node is None else _parse_end(node.data)
        is_ours = producer_id >> _RANGE_BITS == (unused - 1) >> _RANGE_BITS
        return is_ours and producer_id < unused

    async def _reserve(self) -> tuple[int, int]:
        while True:
            node = await self._store.get(PATH)
            start = first_id() if node is None else _parse_end(node.data)
            if start > MAX_PRODUCER_ID - BLOCK_SIZE:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
            data = self._format(start)
            change = Create(PATH, data) if node is None else Set(PATH, data, node.version)
            try:
                await self._store.transaction([change])
            except (VersionConflict, NodeExists):  # another broker was faster
                continue
            return start, start + BLOCK_SIZE

    def _format(self, start: int) -> bytes:
        block = {
            "version": 1,
            "broker": self._node_id,
            "block_start": str(start),
            "block_end": str(start + BLOCK_SIZE - 1),
        }
        return json.dumps(block).encode()


def _parse_end(data: bytes) -> int:
    """The first id after the block."""
    return int(json.loads(data)["block_end"]) + 1
