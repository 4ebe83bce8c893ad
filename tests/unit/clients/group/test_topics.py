"""Topics that are wanted by name or by pattern, and what a leader sees change."""

import re
from typing import Any

import pytest

from qbus.clients.group.topics import GroupTopics, SubscribedTopics, snapshot
from qbus.clients.net.metadata import ClusterMetadata
from qbus.errors import ApiError, ConfigError, ErrorCode
from qbus.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class FakeCluster:
    """Topics by name: the racks of each partition's one replica; or an error code."""

    def __init__(self, **topics: list[str | None] | ErrorCode) -> None:
        self.topics: dict[str, list[str | None] | ErrorCode] = dict(topics)
        self.metadata = ClusterMetadata()
        self.asked: list[set[str] | None] = []

    async def refresh(self, names: Any) -> None:
        self.asked.append(None if names is None else set(names))
        racks = ["r0", "r1", None]
        self.metadata.update(
            MetadataResponse(
                brokers=[
                    MetadataResponseBroker(node_id=node, host="h", port=1, rack=rack)
                    for node, rack in enumerate(racks)
                ],
                topics=[self._topic(name) for name in (self.topics if names is None else names)],
            ),
            is_whole=names is None,
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        racks = self.topics.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if isinstance(racks, ErrorCode):
            return MetadataResponseTopic(error_code=racks, name=name)
        return MetadataResponseTopic(
            name=name,
            is_internal=name.startswith("__"),
            partitions=[
                MetadataResponsePartition(
                    partition_index=index, replica_nodes=[["r0", "r1", None].index(rack)]
                )
                for index, rack in enumerate(racks)
            ],
        )


def wanted(cluster: FakeCluster, topics: Any) -> SubscribedTopics:
    made: Any = cluster
    return SubscribedTopics(made, topics)


async def test_named_topics_are_kept_and_existing_ones_counted() -> None:
    cluster = FakeCluster(a=[None, None])
    topics = wanted(cluster, ["b", "a", "a"])
    await topics.refresh(["led"])
    assert topics.names == ("a", "b")
    assert topics.counts() == {"a": 2}
    assert cluster.asked == [{"a", "b", "led"}]


async def test_a_pattern_matches_whole_names_but_no_internal_ones() -> None:
    cluster = FakeCluster(ab=[None], abc=[None], xab=[None], __ab=[None])
    topics = wanted(cluster, re.compile("(__)?ab"))
    found = [topics.names]
    await topics.refresh()
    found.append(topics.names)
    del cluster.topics["ab"]
    await topics.refresh()
    assert [*found, topics.names] == [(), ("ab",), ()]


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION]
)
async def test_topics_that_cannot_be_read_are_told_of(code: ErrorCode) -> None:
    with pytest.raises(ApiError) as caught:
        await wanted(FakeCluster(a=code), ["a"]).refresh()
    assert caught.value.code is code


@pytest.mark.parametrize("topics", ["topic", b"topic"])
def test_one_name_is_not_several(topics: Any) -> None:
    with pytest.raises(ConfigError):
        wanted(FakeCluster(), topics)


async def test_a_snapshot_has_the_racks_that_are_known() -> None:
    cluster: Any = FakeCluster(a=["r1", None])
    await cluster.refresh(["a", "b"])
    assert snapshot(cluster, ["a", "b"]) == {"a": (frozenset({"r1"}), frozenset())}


async def led(cluster: FakeCluster, rack: str | None = None) -> GroupTopics:
    made: Any = cluster
    watch = GroupTopics(made, rack)
    watch.subscribe(wanted(cluster, ["a"]))
    await watch.refresh()
    assert watch.join() == ("a",)
    await watch.lead({"a", "b"})
    return watch


async def test_a_leader_watches_the_topics_of_the_whole_group() -> None:
    cluster = FakeCluster(a=[None], b=[None])
    watch = await led(cluster)
    assert cluster.asked == [{"a"}, {"b"}]
    assert watch.reason_to_rejoin() is None
    cluster.topics["b"] = [None, None]
    await watch.refresh()
    assert watch.reason_to_rejoin() == "topics have changed"


@pytest.mark.parametrize("before", [[], [None]])
async def test_topics_that_appear_and_vanish_matter(before: list[None]) -> None:
    cluster = FakeCluster(a=[None])
    if before:
        cluster.topics["b"] = [None]
    watch = await led(cluster)
    if before:
        del cluster.topics["b"]
    else:
        cluster.topics["b"] = [None]
    await watch.refresh()
    assert watch.reason_to_rejoin() == "topics have changed"


@pytest.mark.parametrize(("rack", "matters"), [("r0", True), (None, False)])
async def test_racks_matter_to_a_leader_that_has_one(rack: str | None, matters: bool) -> None:
    cluster = FakeCluster(a=["r0"], b=[None])
    watch = await led(cluster, rack)
    cluster.topics["a"] = ["r1"]
    await watch.refresh()
    assert (watch.reason_to_rejoin() is not None) is matters


async def test_a_follower_cares_for_its_own_subscription() -> None:
    cluster = FakeCluster(a=[None])
    watch = await led(cluster)
    watch.join()
    cluster.topics["a"] = [None, None]
    await watch.refresh()
    assert watch.reason_to_rejoin() is None
    watch.subscribe(wanted(cluster, ["c"]))
    assert watch.reason_to_rejoin() == "subscription has changed"
