"""What the commands ask of the cluster."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from qbus.cli.failures import Failure
from qbus.cli.reassign import actions
from qbus.clients import Reassignment
from qbus.clients.types import (
    ClusterDescription,
    ConfigKind,
    Node,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)
from qbus.errors import ApiError, ErrorCode

PLACE = TopicPartition("t", 0)
RATE = "leader.replication.throttled.rate"
MADE = "follower.replication.throttled.replicas"


class Admin:
    """Of brokers 1 to 3 and the topic t with one partition on brokers 1 and 2."""

    def __init__(self) -> None:
        self.moving: dict[TopicPartition, Reassignment] = {}
        self.asked: list[Mapping[TopicPartition, Any]] = []
        self.config: dict[tuple[ConfigKind, str], dict[str, str]] = {}
        self.failure: ApiError | None = None

    async def describe_cluster(self) -> ClusterDescription:
        nodes = tuple(Node(number, "127.0.0.1", 9091 + number) for number in (1, 2, 3))
        return ClusterDescription("id", 1, nodes)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        partition = PartitionDescription(0, 1, 0, (1, 2), (1, 2), ())
        return {name: TopicDescription(name, UUID(int=1), False, (partition,)) for name in names}

    async def alter_config(
        self,
        kind: ConfigKind,
        name: str,
        *,
        set: Mapping[str, str] | None = None,  # noqa: A002 - as the admin client has it
        unset: Iterable[str] = (),
    ) -> None:
        config = self.config.setdefault((kind, name), {})
        config.update(set or {})
        for key in unset:
            config.pop(key, None)

    async def alter_reassignments(self, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
        if self.failure is not None:
            raise self.failure
        self.asked.append(targets)

    async def list_reassignments(self, partitions: object = None) -> Mapping[Any, Any]:
        return self.moving

    async def cancel_reassignments(self, partitions: Iterable[TopicPartition]) -> None:
        self.asked.append(dict.fromkeys(partitions))

    def throttled(self) -> list[Mapping[str, str]]:
        return [config for config in self.config.values() if config]


async def test_the_plan_back_is_printed_and_only_involved_brokers_are_throttled() -> None:
    admin = Admin()
    done = await actions.execute(admin, {PLACE: (1, 3)}, 1000)  # type: ignore[arg-type]
    assert done["before"]["partitions"] == [{"topic": "t", "partition": 0, "replicas": [1, 2]}]
    assert admin.asked == [{PLACE: (1, 3)}]
    assert admin.config[ConfigKind.TOPIC, "t"][MADE] == "0:3"
    assert admin.config[ConfigKind.BROKER, "3"][RATE] == "1000"


async def test_a_refused_reassignment_leaves_no_throttle() -> None:
    admin = Admin()
    admin.failure = ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker")
    with pytest.raises(ApiError, match="no such broker"):
        await actions.execute(admin, {PLACE: (1, 9)}, 1000)  # type: ignore[arg-type]
    assert admin.throttled() == []


async def test_the_throttle_stays_until_nothing_moves() -> None:
    admin = Admin()
    await actions.execute(admin, {PLACE: (1, 2)}, 1000)  # type: ignore[arg-type]
    admin.moving = {PLACE: Reassignment((1, 2, 3), (3,), ())}
    told = await actions.verify(admin, {PLACE: (1, 2)}, keep_throttle=False)  # type: ignore[arg-type]
    assert [p["state"] for p in told["partitions"]] == ["moving"]
    assert admin.throttled()
    admin.moving = {}
    told = await actions.verify(admin, {PLACE: (1, 2)}, keep_throttle=False)  # type: ignore[arg-type]
    assert [p["state"] for p in told["partitions"]] == ["done"]
    assert admin.throttled() == []


async def test_a_plan_that_was_not_carried_out() -> None:
    told = await actions.verify(Admin(), {PLACE: (3, 2)}, keep_throttle=True)  # type: ignore[arg-type]
    assert [p["state"] for p in told["partitions"]] == ["elsewhere"]


async def test_only_moving_partitions_are_cancelled() -> None:
    admin = Admin()
    assert await actions.cancel(admin, None) == []  # type: ignore[arg-type]
    assert admin.asked == []
    admin.moving = {PLACE: Reassignment((1, 2, 3), (3,), ())}
    (stopped,) = await actions.cancel(admin, None)  # type: ignore[arg-type]
    assert (stopped["topic"], stopped["adding"]) == ("t", [3])
    assert admin.asked == [{PLACE: None}]


async def test_brokers_and_partitions_that_there_are_not() -> None:
    with pytest.raises(Failure, match="there is no broker 7"):
        await actions.generate(Admin(), ["t"], [7], racks=True)  # type: ignore[arg-type]
    with pytest.raises(Failure, match="topic t has no partition 5"):
        await actions.execute(Admin(), {TopicPartition("t", 5): (1,)}, None)  # type: ignore[arg-type]
