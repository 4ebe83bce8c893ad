"""Where a partition goes on: behind the origin of its last record at the target."""

from collections.abc import Iterator
from typing import NamedTuple

from qbus.records import BatchHeader, decode_records
from qbus.records.record import Headers

from ...batches import read_batches
from ...net.cluster import Cluster
from ...offsets import list_offsets
from ...types import EARLIEST, LATEST, TopicPartition
from .stamp import last_stamp

_GROWTH = 16


class Found(NamedTuple):
    """What a partition of the target holds of its origin.

    ``resume``: the offset at the origin to go on from; None: it holds no record from there.
    ``is_empty``: it holds no record at all. ``topic_id``: the id of the topic that its last record
    from there was in, "" if the record does not tell.
    """

    resume: int | None
    is_empty: bool
    topic_id: str = ""


async def find_resume(cluster: Cluster, partition: TopicPartition, origin: bytes) -> Found:
    """Search backwards from the end of a partition for the last record from ``origin``.

    That is usually the very last one; if others write to the topic, much of it may have to be read.
    Raises :class:`~qbus.errors.ApiError` and :class:`~qbus.records.CorruptBatch`.
    """
    start = (await list_offsets(cluster, {partition: EARLIEST}))[partition].offset
    end = (await list_offsets(cluster, {partition: LATEST}))[partition].offset
    is_empty = True
    reach = 1
    while start < end:
        begin = max(start, end - reach)
        stamps = []
        async for header, batch in read_batches(cluster, partition, begin, end):
            if not header.is_control:
                is_empty = False
                stamps.append(last_stamp(_headers(header, batch, partition), origin))
        known = [stamp for stamp in stamps if stamp is not None]
        if known:
            last = max(known)
            return Found(last.offset + 1, is_empty=False, topic_id=last.topic_id)
        end, reach = begin, reach * _GROWTH
    return Found(None, is_empty)


def _headers(
    header: BatchHeader, batch: memoryview, partition: TopicPartition
) -> Iterator[Headers]:
    return (record.headers for record in decode_records(batch, header, *partition))
