"""The content of topics, byte for byte and offset for offset, and what must hold of a mirror."""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from qbus.records import iter_batches, iter_records
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from qbus.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

from .idcs import PARTITIONS, TOPIC, Idc

_FETCH, _LIST_OFFSETS = 11, 7
_EARLIEST, _LATEST = -2, -1
_EPOCH = slice(12, 16)
_PATIENCE = 120.0

Batches = dict[int, bytes]
"""The bytes of batches without leader epochs, by base offset."""


class Span(NamedTuple):
    """Return the start of a partition and its high watermark."""

    start: int
    end: int


def span(idc: Idc, topic: str, index: int) -> Span | None:
    """Return the span of a partition; None without a leader or without the topic."""
    node = idc.view.leader(topic, index)
    if node < 0 or not idc.brokers[node].alive:
        return None
    with RawClient(idc.brokers[node].port) as client:
        ends = []
        for timestamp in _EARLIEST, _LATEST:
            asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
            )
            answer = client.ask(ApiKey.LIST_OFFSETS, _LIST_OFFSETS, request)
            data = answer.topics[0].partitions[0]
            if data.error_code:
                return None
            ends.append(data.offset)
    return Span(*ends)


def read(idc: Idc, topic: str, index: int) -> Batches:
    """Return all batches of a partition."""
    found: Batches = {}
    known = span(idc, topic, index)
    assert known is not None, f"nobody leads {topic}-{index} in {idc.name}"
    with RawClient(idc.brokers[idc.view.leader(topic, index)].port) as client:
        offset = known.start
        while offset < known.end:
            wanted = FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=1 << 20
            )
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=[FetchTopic(topic=topic, partitions=[wanted])],
            )
            answer = client.ask(ApiKey.FETCH, _FETCH, request)
            data = answer.responses[0].partitions[0]
            assert data.error_code == 0
            for header, batch in iter_batches(data.records):
                whole = bytearray(batch)
                whole[_EPOCH] = bytes(4)
                assert header.base_offset not in found
                found[header.base_offset] = bytes(whole)
                offset = header.last_offset + 1
    return found


def topics(idc: Idc) -> set[str]:
    """Return the topics, without internal ones."""
    return {name for name in idc.view.topics() if not name.startswith("__")}


def wait_for_topics(idcs: Iterable[Idc], expected: Iterable[Iterable[str]]) -> None:
    """Return when each datacenter has the topics that it should have in the end."""
    wanted = [(idc, set(names)) for idc, names in zip(idcs, expected, strict=True)]
    wait_until(lambda: all(topics(idc) >= names for idc, names in wanted), "topics", _PATIENCE, 0.5)


def wait_until_equal(source: Idc, target: Idc) -> None:
    """Return when a mirror has reached its source, which is no longer written to."""
    name = f"{source.name}.{TOPIC}"

    def is_equal() -> bool:
        ours = [span(source, TOPIC, index) for index in range(PARTITIONS)]
        theirs = [span(target, name, index) for index in range(PARTITIONS)]
        return None not in ours and ours == theirs

    wait_until(is_equal, f"{name} in {target.name}", _PATIENCE, 0.5)


def judge(source: Idc, target: Idc, acknowledged: int) -> None:
    """Check that the mirror equals the source, which has all acknowledged records once."""
    wait_until_equal(source, target)
    values: Counter[bytes | None] = Counter()
    for index in range(PARTITIONS):
        original = read(source, TOPIC, index)
        copy = read(target, f"{source.name}.{TOPIC}", index)
        assert copy == original, f"{source.name} at {target.name}, partition {index}"
        assert list(copy) == list(original)
        values.update(record.value for batch in copy.values() for record in iter_records(batch))
    assert len(values) == acknowledged
    assert set(values.values()) <= {1}


def replicas_agree(idc: Idc, names: Iterable[str]) -> None:
    """Check that all replicas become equal."""

    def content(node: int, partition: str) -> bytes:
        files = sorted((idc.brokers[node].data_dir / partition).glob("*.log"))
        return b"".join(file.read_bytes() for file in files)

    def are_equal(name: str) -> bool:
        return all(
            len({content(node, f"{name}-{index}") for node in one.replica_nodes}) == 1
            for index, one in idc.view.partitions(name).items()
        )

    for name in names:
        wait_until(partial(are_equal, name), f"equal replicas of {name}", _PATIENCE, 0.5)
