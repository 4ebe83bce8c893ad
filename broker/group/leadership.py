"""Whether this broker still leads the partitions of ``__consumer_offsets`` that it takes for its.

A broker hears late that another one was elected, and not at all while it is paused. Meanwhile it
cannot store anything, for its replicas follow the other one; but what it tells from memory may be
older than what the other one has acknowledged. The node of a partition's state changes with each
election. So where it still has this broker, in the epoch in which the partition was loaded, nobody
else has acknowledged anything since then.

Many groups are asked about at once: those who ask while the store is being asked share the next
question, which names each partition once.
"""

import asyncio
import math
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any, Final

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Check, MetadataStore, Node, NodeError, Op
from qbus.metadata.errors import MalformedNode
from qbus.metadata.znodes import PartitionStateNode
from qbus.names import OFFSETS_TOPIC

from ..internal_logs import InternalLog, Shard
from ..partition.partition import Partition
from .offset_machine import OffsetsMachine
from .znodes import MAX_OPS

_ATTEMPTS: Final = 5  # while the replicas in sync change
_ANY: Final = -1
_MOST_AT_ONCE: Final = 2  # questions, so that nobody waits for two answers


class Leadership:
    """Asks the store who leads the partitions of ``__consumer_offsets``."""

    def __init__(
        self, store: MetadataStore, log: InternalLog[OffsetsMachine], node_id: int
    ) -> None:
        """``node_id``: this broker."""
        self._store = store
        self._log = log
        self._node_id = node_id
        self._asked: dict[Shard[Any], list[asyncio.Future[None]]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    async def checks(self, index: int, epoch: int = _ANY) -> list[Op]:
        """What a transaction checks that depends on this broker's leading a partition.

        Empty: by the store it does not lead it, or not in this ``epoch``.

        Raises:
            StoreError: it cannot be read.
        """
        return self._check(index, epoch, await self._store.get(_path(index)))

    def _check(self, index: int, epoch: int, node: Node | None) -> list[Op]:
        if node is None:
            return []
        state = PartitionStateNode.decode(node.data)
        if state.leader != self._node_id or epoch not in {_ANY, state.leader_epoch}:
            return []
        return [Check(_path(index), node.version)]

    def is_certain(self, group_id: str) -> bool:
        """Whether nobody else can have been elected for a group's partition.

        Raises:
            ApiError: the partition is not led here, as is known already, or not loaded.
        """
        return not _may_be_led_elsewhere(self._log.shard(group_id).partition)

    async def confirm(self, group_id: str) -> None:
        """Have the store confirm that this broker leads a group's partition.

        Until the next ``await``, what the log has in memory was current when it was asked.

        Raises:
            ApiError: NOT_COORDINATOR, another broker leads it; COORDINATOR_LOAD_IN_PROGRESS.
            StoreError: it cannot be asked.
        """
        shard = self._log.shard(group_id)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(shard, []).append(answer)
        if len(self._asking) < _MOST_AT_ONCE:
            self._asking.add(asyncio.create_task(self._ask(), name="confirm who leads offsets"))
        await answer
        if self._log.shard(group_id) is not shard:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def _ask(self) -> None:
        """Answer all who ask, until nobody does."""
        task = asyncio.current_task()
        assert task is not None
        try:
            while self._asked:
                asked = dict(islice(self._asked.items(), MAX_OPS))
                for shard in asked:
                    del self._asked[shard]
                refusals = await self._confirm_all(asked)
                for shard, answers in asked.items():
                    _answer(answers, refusals[shard])
        finally:
            self._asking.discard(task)

    async def _confirm_all(
        self, shards: Collection[Shard[Any]]
    ) -> dict[Shard[Any], Exception | None]:
        """Why these are not led here, or cannot be asked about; None: they are."""
        try:
            nodes = await self._store.get_many([_path(shard.partition.index) for shard in shards])
            checks = {shard: self._check_led(shard, nodes) for shard in shards}
            if together := [operation for some in checks.values() for operation in some]:
                await self._store.transaction(together)
        except (NodeError, MalformedNode):  # of one of them, which is not to blame for the others
            refusals = await asyncio.gather(*map(self._confirm, shards))
            return dict(zip(shards, refusals, strict=True))
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for an answer
            return dict.fromkeys(shards, error)
        return {shard: None if led else _led_elsewhere(shard) for shard, led in checks.items()}

    def _check_led(self, shard: Shard[Any], nodes: Mapping[str, Node]) -> list[Op]:
        index = shard.partition.index
        return self._check(index, shard.epoch, nodes.get(_path(index)))

    async def _confirm(self, shard: Shard[Any]) -> Exception | None:
        """The same for one of them."""
        try:
            for _ in range(_ATTEMPTS):
                checks = await self.checks(shard.partition.index, shard.epoch)
                if not checks:
                    return _led_elsewhere(shard)
                try:
                    await self._store.transaction(checks)
                except NodeError:
                    continue  # it was read from a server that lags behind, or has just changed
                return None
        except Exception as error:  # noqa: BLE001 - the same
            return error
        return ApiError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the state of {shard} changes too often"
        )


def _path(index: int) -> str:
    return PartitionStateNode.path(OFFSETS_TOPIC, index)


def _led_elsewhere(shard: Shard[Any]) -> ApiError:
    return ApiError(ErrorCode.NOT_COORDINATOR, f"another broker leads {shard}")


def _answer(answers: Collection[asyncio.Future[None]], failure: Exception | None) -> None:
    for answer in answers:
        if answer.done():
            continue
        if failure is None:
            answer.set_result(None)
        else:
            answer.set_exception(failure)


def _may_be_led_elsewhere(partition: Partition) -> bool:
    """Whether replicas on other brokers are in sync or eligible, or may have become so."""
    followers = partition.followers
    if followers is None or followers.proposed is not None:
        return True
    return partition.may_be_deposed(math.inf)  # since whenever they have not fetched
