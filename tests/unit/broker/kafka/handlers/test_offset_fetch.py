"""OffsetFetch at every version."""

from collections.abc import Mapping
from typing import Any

import pytest

from qbus.broker.group import Offset
from qbus.errors import ErrorCode
from qbus.metadata import StoreUnavailable
from qbus.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

from ...group.shell import TOPIC_ID, Shell
from .group_broker import NODE, GroupBroker, versions

OTHER_ID = b"u" * 16
IDS = {"t": TOPIC_ID, "u": OTHER_ID}
NO_COMMIT = (-1, -1, "", 0)

Topics = Mapping[str, list[int]] | None
Found = dict[str, dict[int, tuple[int, int, str, int]]]


async def broker_with_commits() -> GroupBroker:
    broker = GroupBroker()
    for name, topic_id in IDS.items():
        broker.metadata.add(name, topic_id=topic_id)
    await broker.commit("g", "t", 0, Offset(5, 3, "note", topic_id=TOPIC_ID))
    await broker.commit("g", "u", 1, Offset(6, topic_id=OTHER_ID))
    return broker


async def fetch(
    broker: GroupBroker, version: int, topics: Topics, group_id: str = "g"
) -> tuple[int, Found]:
    """The group's error, and what each partition is told."""
    response = await broker.ask(version, _request(version, topics, group_id))
    if version >= 8:
        (response,) = response.groups
        assert response.group_id == group_id
    names = {topic_id: name for name, topic_id in IDS.items()}
    return response.error_code, {
        topic.name if version < 10 else names.get(topic.topic_id, "?"): {
            p.partition_index: (
                p.committed_offset,
                p.committed_leader_epoch,
                p.metadata,
                p.error_code,
            )
            for p in topic.partitions
        }
        for topic in response.topics
    }


def _request(version: int, topics: Topics, group_id: str) -> OffsetFetchRequest:
    if version < 8:
        classic = (
            None
            if topics is None
            else [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ]
        )
        return OffsetFetchRequest(group_id=group_id, topics=classic)
    modern = (
        None
        if topics is None
        else [
            OffsetFetchRequestTopics(
                name=name, topic_id=IDS.get(name, b"?" * 16), partition_indexes=indexes
            )
            for name, indexes in topics.items()
        ]
    )
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=modern)])


@pytest.mark.parametrize("version", versions("OFFSET_FETCH"))
class TestAtEveryVersion:
    async def test_tells_commits_and_where_there_are_none(self, version: int) -> None:
        broker = await broker_with_commits()
        epoch = 3 if version >= 5 else -1

        error, found = await fetch(broker, version, {"t": [0, 1], "u": [7]})

        assert error == ErrorCode.NONE
        assert found == {"t": {0: (5, epoch, "note", 0), 1: NO_COMMIT}, "u": {7: NO_COMMIT}}

    async def test_of_an_unknown_group_is_no_error(self, version: int) -> None:
        broker = await broker_with_commits()

        error, found = await fetch(broker, version, {"t": [0]}, group_id="nobody")

        assert error == ErrorCode.NONE
        assert found == {"t": {0: NO_COMMIT}}

    async def test_of_an_unknown_topic_is_an_error_only_by_id(self, version: int) -> None:
        broker = await broker_with_commits()

        error, found = await fetch(broker, version, {"unknown": [0]})

        assert error == ErrorCode.NONE
        by_id = {"?": {0: (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)}}
        assert found == (by_id if version >= 10 else {"unknown": {0: NO_COMMIT}})

    async def test_that_cannot_be_read_is_to_be_tried_again(self, version: int) -> None:
        broker = await broker_with_commits()
        broker.shell.restart()
        broker.shell.store.failures.append(StoreUnavailable("disk"))

        error, found = await fetch(broker, version, {"t": [0]})

        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if version == 1:
            assert found == {"t": {0: (-1, -1, "", unavailable)}}
        else:
            assert (error, found) == (unavailable, {})


@pytest.mark.parametrize("version", [v for v in versions("OFFSET_FETCH") if v >= 2])
async def test_null_means_all_topics(version: int) -> None:
    broker = await broker_with_commits()

    _, found = await fetch(broker, version, None)
    _, of_nobody = await fetch(broker, version, None, group_id="nobody")

    assert {name: sorted(partitions) for name, partitions in found.items()} == {
        "t": [0],
        "u": [1],
    }
    assert of_nobody == {}


async def test_by_id_all_topics_are_those_that_exist() -> None:
    broker = await broker_with_commits()
    del broker.metadata.topics["u"]

    _, by_name = await fetch(broker, 9, None)
    _, by_id = await fetch(broker, 10, None)

    assert set(by_name) == {"t", "u"}
    assert set(by_id) == {"t"}


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_many_groups_are_answered_in_their_order(version: int) -> None:
    broker = await broker_with_commits()
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("x", "g", "")]

    response = await broker.ask(version, OffsetFetchRequest(groups=groups, require_stable=True))

    found: list[Any] = [(group.group_id, len(group.topics)) for group in response.groups]
    assert found == [("x", 0), ("g", 2), ("", 0)]


class TestHundredsOfGroups:
    NAMES = tuple(f"group-{number}" for number in range(300))

    async def ask(self, broker: GroupBroker) -> dict[str, int]:
        """The error of each group."""
        asked = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in self.NAMES]
        response = await broker.ask(8, OffsetFetchRequest(groups=asked))
        return {group.group_id: group.error_code for group in response.groups}

    async def test_share_what_the_store_is_asked(self) -> None:
        broker = GroupBroker()
        for name in self.NAMES:
            await broker.commit(name, "t", 0, Offset(5))
        before = len(broker.shell.store.transactions)

        assert set((await self.ask(broker)).values()) == {ErrorCode.NONE}

        assert len(broker.shell.store.transactions) == before + 2

    async def test_are_refused_alone(self) -> None:
        """Another broker has some of them: the others are told."""
        broker = GroupBroker()
        for name in self.NAMES:
            await broker.commit(name, "t", 0, Offset(5))
        other = Shell(broker.shell, node_id=NODE.id)
        taken = self.NAMES[10:90]
        for name in taken:
            await other.groups.offsets(name)

        errors = await self.ask(broker)

        assert {name for name, error in errors.items() if error} == set(taken)
        assert {errors[name] for name in taken} == {ErrorCode.NOT_COORDINATOR}
