"""ElectLeaders: who is asked for leads, and whoever cannot is told why."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.controller import NewTopic
from qbus.broker.metadata.image import BrokerInfo
from qbus.errors import ErrorCode
from qbus.metadata import Set
from qbus.metadata.feed import announce, sequence_of
from qbus.metadata.znodes import ChangeNode, PartitionStateNode
from qbus.wire import ApiKey
from qbus.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane

VERSIONS = [0, 1, 2]


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path, others=(BrokerInfo(2, "b2", 9092),)) as plane:
        await plane.controller.create_topics([NewTopic("t", assignment={0: [1, 2], 1: [2, 1]})])
        state = PartitionStateNode(2, 3, (1, 2), 1).encode()
        results = await plane.store.transaction(
            [
                Set(PartitionStateNode.path("t", 0), state),
                announce(ChangeNode(states={"t": (0,)}).encode()),
            ]
        )
        await plane.metadata.applied(sequence_of(str(results[-1])))
        yield plane


async def ask(plane: MetadataPlane, version: int, request: ElectLeadersRequest) -> object:
    return await plane.ask(ApiKey.ELECT_LEADERS, version, request)


def results(response: object) -> dict[tuple[str, int], int]:
    assert isinstance(response, ElectLeadersResponse)
    assert response.error_code == ErrorCode.NONE
    return {
        (topic.topic, one.partition_id): one.error_code
        for topic in response.replica_election_results
        for one in topic.partition_result
    }


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_partition_is_answered_for_itself(plane: MetadataPlane, version: int) -> None:
    wanted = [
        TopicPartitions(topic="t", partitions=[0, 1, 7]),
        TopicPartitions(topic="none", partitions=[0]),
    ]
    response = await ask(plane, version, ElectLeadersRequest(topic_partitions=wanted))
    assert results(response) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [one.leader for one in plane.metadata.topics["t"].partitions] == [1, 2]
    assert plane.metadata.topics["t"].partitions[0].leader_epoch == 4


@pytest.mark.parametrize("kind", [0, 1])
async def test_a_replica_that_its_broker_cannot_use_is_no_leader(tmp_path: Path, kind: int) -> None:
    lost = BrokerInfo(2, "b2", 9092, offline=frozenset({("t", 0), ("u", 0)}))
    async with metadata_plane(tmp_path, others=(lost,)) as plane:
        await plane.controller.create_topics(
            [NewTopic("t", assignment={0: [2]}), NewTopic("u", assignment={0: [1, 2]})]
        )
        wanted = [TopicPartitions(topic=name, partitions=[0]) for name in ("t", "u")]
        request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
        preferred, eligible = (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        )
        assert results(await ask(plane, 2, request)) == {
            ("t", 0): eligible if kind else preferred,
            ("u", 0): ErrorCode.ELECTION_NOT_NEEDED,
        }


@pytest.mark.parametrize("version", VERSIONS)
async def test_of_the_whole_cluster_only_what_was_due_is_answered(
    plane: MetadataPlane, version: int
) -> None:
    response = await ask(plane, version, ElectLeadersRequest(topic_partitions=None))
    assert results(response) == {("t", 0): ErrorCode.NONE}


@pytest.mark.parametrize("version", [1, 2])
async def test_other_elections_are_refused_as_a_whole(plane: MetadataPlane, version: int) -> None:
    request = ElectLeadersRequest(topic_partitions=None, election_type=1)
    assert results(await ask(plane, version, request)) == {}
    request = ElectLeadersRequest(topic_partitions=None, election_type=2)
    with pytest.raises(Exception, match="no election of type 2"):
        await ask(plane, version, request)
