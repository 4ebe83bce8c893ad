"""DescribeLogDirs (key 35): the data directories, what is in them, and their volumes' space.

Version 3 adds an error for the whole answer, 4 the volume's total and usable bytes, 5 whether new
replicas avoid the directory, which is false here. A directory that failed is KAFKA_STORAGE_ERROR,
and names no replicas. No topics (null) stands for all. A replica that is being moved to a directory
is there as a future one, with the bytes that were copied; its lag is the number of records that are
not copied yet. Tagged fields of Qbus say which batches of a replica are damaged, why it is not
compacted, and why a directory is offline or takes no records.
"""

import asyncio
import os
from collections import defaultdict
from typing import TYPE_CHECKING

from qbus.errors import ErrorCode
from qbus.wire.messages.describe_log_dirs import (
    DescribeLogDirsDamage,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from ...authorization import CLUSTER, Operation
from ...turns import Pace, next_turn
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker
    from ...log import Log
    from ...log.data_directory import DataDirectory

_UNKNOWN = -1
_MOST_DAMAGE = 1000  # ranges of one log that are told


async def handle(
    broker: "Broker", context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Describe each directory; its volume is asked in a thread."""
    context.authorize(Operation.DESCRIBE, CLUSTER)
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        results=[
            await _describe(broker, directory, wanted) for directory in broker.logs.directories
        ]
    )


async def _describe(
    broker: "Broker", directory: "DataDirectory", wanted: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    path = directory.absolute_path
    if directory.offline:
        return DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path, problem=directory.problem
        )
    topics = defaultdict(list)
    troubles = broker.cleaner.troubles()
    pace = Pace()
    for key, log in list(directory.logs.items()):
        if pace.is_over():
            await next_turn()
        if wanted is None or key in wanted:
            partition = broker.replicas.get_partition(*key)
            behind = partition.high_watermark - log.log_end_offset if partition else 0
            topics[key.topic].append(
                DescribeLogDirsPartition(
                    partition_index=key.partition,
                    partition_size=log.size,
                    offset_lag=max(behind, 0),
                    compaction_problem=troubles.get(key, ""),
                    damage=_damage(log),
                )
            )
    for key, move in list(directory.moves.items()):
        if pace.is_over():
            await next_turn()
        if wanted is None or key in wanted:
            topics[key.topic].append(
                DescribeLogDirsPartition(
                    partition_index=key.partition,
                    partition_size=move.copied_bytes,
                    offset_lag=max(move.log.log_end_offset - move.copied_end, 0),
                    is_future_key=True,
                )
            )
    total, usable = await asyncio.to_thread(_space, path)
    return DescribeLogDirsResult(
        log_dir=path,
        topics=[DescribeLogDirsTopic(name=name, partitions=topics[name]) for name in topics],
        total_bytes=total,
        usable_bytes=usable,
        problem=directory.problem,
    )


def _damage(log: "Log") -> list[DescribeLogDirsDamage]:
    return [
        DescribeLogDirsDamage(
            path=one.path,
            position=one.position,
            size=one.size,
            first_offset=one.first_offset,
            last_offset=one.last_offset,
            since_ms=one.since_ms,
            problem=one.problem,
        )
        for one in log.damage[:_MOST_DAMAGE]
    ]


def _space(path: str) -> tuple[int, int]:
    try:
        volume = os.statvfs(path)
    except OSError:
        return _UNKNOWN, _UNKNOWN
    return volume.f_frsize * volume.f_blocks, volume.f_frsize * volume.f_bavail
