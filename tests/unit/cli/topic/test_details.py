"""What is said of topics when not everybody answers."""

import asyncio
from collections.abc import Iterable, Mapping
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from rich.console import Console

from qbus.cli import failing_directories
from qbus.cli.topic.details import describe_topics
from qbus.cli.topic.health import Filters
from qbus.cli.topic.replicas import damage_sentence
from qbus.cli.topic.tables import incomplete, topic_descriptions
from qbus.clients import ConnectionFailed, PartialFailure
from qbus.clients.types import (
    DamagedBatches,
    LogDir,
    OffsetAndTimestamp,
    PartitionDescription,
    ReplicaSize,
    TopicDescription,
    TopicPartition,
)
from qbus.errors import ApiError, ErrorCode

SIZES = {
    1: (ReplicaSize("t", 0, 10), ReplicaSize("t", 1, 19), ReplicaSize("other", 0, 99)),
    2: (ReplicaSize("t", 0, 8), ReplicaSize("t", 1, 20)),
}


class Admin:
    """Of the topic t with three partitions, the last of which has no leader."""

    def __init__(self) -> None:
        self.offsets_failure: ApiError | None = None
        self.sizes_failure: ApiError | None = None
        self.silent: set[int] = set()
        self.asked: list[int] = []
        self.eligible_failure: ApiError | None = None
        self.problem = ""

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        partitions = tuple(
            PartitionDescription(index, leader, 0, (1, 2), (1, 2), offline)
            for index, (leader, offline) in enumerate([(1, ()), (1, (2,)), (-1, (1, 2))])
        )
        return {name: TopicDescription(name, UUID(int=1), False, partitions) for name in names}

    async def describe_configs(self, resources: Iterable[Any]) -> dict[Any, list[Any]]:
        return {resource: [] for resource in resources}

    async def list_offsets(
        self, partitions: Mapping[TopicPartition, int], *, timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        assert timeout_ms <= 3000, "somebody waits for the description"
        if self.offsets_failure is not None:
            raise self.offsets_failure
        return {place: OffsetAndTimestamp(7, -1) for place in partitions}

    async def describe_log_dirs(self, nodes: Iterable[int]) -> list[LogDir]:
        (node,) = nodes
        self.asked.append(node)
        if node in self.silent:
            await asyncio.Event().wait()
        if self.sizes_failure is not None:
            raise self.sizes_failure
        is_online = self.problem == "the disk is full" or not self.problem
        return [LogDir(node, "/data", is_online, -1, -1, SIZES[node], self.problem)]

    async def eligible_leaders(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[int]]:
        if self.eligible_failure is not None:
            raise self.eligible_failure
        return {TopicPartition(topic, 2): (1,) for topic in topics}


async def said(admin: Admin) -> list[tuple[int | None, int | None]]:
    """The end offset and the size of each partition."""
    (document,) = await describe_topics(admin, ["t"])  # type: ignore[arg-type]
    return [(p["end_offset"], p["size"]) for p in document["partitions"]]


async def test_everybody_answers() -> None:
    assert await said(Admin()) == [(7, 10), (7, 20), (None, None)]


@pytest.mark.parametrize(
    ("failure", "first"),
    [
        (ConnectionFailed("gone"), None),
        (
            PartialFailure(
                {TopicPartition("t", 1): ConnectionFailed("gone")},
                {TopicPartition("t", 0): OffsetAndTimestamp(5, -1)},
            ),
            5,
        ),
    ],
)
async def test_leaders_that_do_not_answer(failure: ApiError, first: int | None) -> None:
    admin = Admin()
    admin.offsets_failure = failure
    assert await said(admin) == [(first, 10), (None, 20), (None, None)]


async def test_a_partition_that_cannot_be_read_is_named_with_the_reason() -> None:
    admin: Any = Admin()
    documents = await describe_topics(admin, ["t"])
    offline = "it has no leader; offline on broker 1, 2"
    assert [part["unread"] for part in documents[0]["partitions"]] == [None, None, offline]
    assert incomplete(documents) == f"t-2: {offline}"
    admin.offsets_failure = PartialFailure(
        {TopicPartition("t", 1): ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "t-1: no disk")},
        {TopicPartition("t", 0): OffsetAndTimestamp(5, -1)},
    )
    documents = await describe_topics(admin, ["t"])
    unread = [part["unread"] for part in documents[0]["partitions"]]
    assert unread == [None, "t-1: no disk (KAFKA_STORAGE_ERROR)", offline]
    assert incomplete(documents).endswith("(and 1 more)")
    shown = text(documents)
    assert "records without 2 partitions that cannot be read" in shown
    assert f"Partition 2 cannot be read: {offline}" in shown


async def test_what_can_be_read_is_complete() -> None:
    admin: Any = Admin()
    admin.describe_topics = healthy
    documents = await describe_topics(admin, ["t"])
    assert incomplete(documents) == ""
    assert "cannot be read" not in text(documents)


async def healthy(names: Iterable[str]) -> dict[str, TopicDescription]:
    partition = PartitionDescription(0, 1, 0, (1, 2), (1, 2), ())
    return {name: TopicDescription(name, UUID(int=1), False, (partition,)) for name in names}


@pytest.mark.parametrize(
    ("problem", "said_so"),
    [
        ("flush: [Errno 5] Input/output error", "/data is offline: flush: [Errno 5] Input/output"),
        ("the disk is full", "/data takes no records: the disk is full"),
    ],
)
async def test_failing_directories_are_named(problem: str, said_so: str) -> None:
    admin: Any = Admin()
    admin.problem = problem
    documents = await describe_topics(admin, ["t"])
    assert [(one["broker"], one["reason"]) for one in documents[0]["failing_directories"]] == [
        (1, problem),
        (2, problem),
    ]
    assert f"Broker 1: {said_so}" in text(documents)


def text(documents: list[dict[str, Any]]) -> str:
    """What is shown on a wide terminal."""
    console = Console(width=300, file=StringIO())
    console.print(topic_descriptions(documents))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


async def test_brokers_that_do_not_tell_sizes() -> None:
    admin = Admin()
    admin.sizes_failure = ConnectionFailed("gone")
    assert await said(admin) == [(7, None), (7, None), (None, None)]


async def test_a_broker_that_says_nothing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failing_directories, "PATIENCE_S", 0.05)
    admin = Admin()
    admin.silent = {2}
    async with asyncio.timeout(5):
        assert await said(admin) == [(7, 10), (7, 19), (None, None)]
    assert sorted(admin.asked) == [1, 2]


async def test_eligible_leaders_are_described() -> None:
    admin = Admin()
    (document,) = await describe_topics(admin, ["t"])  # type: ignore[arg-type]
    assert [p["elr"] for p in document["partitions"]] == [None, None, [1]]
    admin.eligible_failure = ConnectionFailed("gone")
    (document,) = await describe_topics(admin, ["t"])  # type: ignore[arg-type]
    assert [p["elr"] for p in document["partitions"]] == [None, None, None]


async def test_only_selected_partitions_are_described() -> None:
    (document,) = await describe_topics(Admin(), ["t"], Filters(unavailable=True))  # type: ignore[arg-type]
    assert [p["partition"] for p in document["partitions"]] == [2]
    admin = Admin()
    assert await describe_topics(admin, ["t"], Filters(under_replicated=True)) == []  # type: ignore[arg-type]
    assert not admin.asked, "nothing more is asked where nothing is to be described"


async def test_replicas_that_are_not_compacted_are_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    damaged = ReplicaSize("t", 1, 20, compaction_problem="at offset 7: bad CRC")
    monkeypatch.setitem(SIZES, 2, (ReplicaSize("t", 0, 8), damaged))
    admin: Any = Admin()
    (topic,) = await describe_topics(admin, ["t"])
    assert topic["uncompacted"] == [{"partition": 1, "broker": 2, "reason": "at offset 7: bad CRC"}]


async def test_batches_that_cannot_be_read_are_named_with_their_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = DamagedBatches("/d/t-1/0.log", 99, 120, 7, 8, 1_700_000_000_000, "bad CRC")
    lost = DamagedBatches("/d/t-0", 0, 0, 3, -1, 1_700_000_000_000, "records are missing")
    held = (ReplicaSize("t", 0, 8, damage=(lost,)), ReplicaSize("t", 1, 20, damage=(bad,)))
    monkeypatch.setitem(SIZES, 2, held)
    admin: Any = Admin()
    (topic,) = await describe_topics(admin, ["t"])
    first, second = topic["damaged"]
    assert (second["partition"], second["broker"]) == (1, 2)
    assert (second["first_offset"], second["last_offset"]) == (7, 8)
    assert (second["file"], second["position"]) == ("/d/t-1/0.log", 99)
    assert second["since"] == 1_700_000_000_000
    assert first["last_offset"] is None
    said = damage_sentence(second)
    assert said.startswith(
        "t-1 on broker 2: offsets 7 to 8 are damaged, /d/t-1/0.log at 99, found "
    )
    assert said.endswith("bad CRC")
    assert "t-0 on broker 2 is not served" in damage_sentence(first)
