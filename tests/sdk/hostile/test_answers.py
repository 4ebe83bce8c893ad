"""Well-formed answers that lie: about brokers, partitions, versions, groups and offsets."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from qbus.errors import ApiError
from qbus.wire import ApiKey
from qbus.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from qbus.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from qbus.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from qbus.wire.messages.metadata import MetadataResponse, MetadataResponsePartition
from qbus.wire.messages.sync_group import SyncGroupResponse
from tests.sdk.faults.test_cut_connections import FIRST_SEED
from tests.sdk.hostile.victims import (
    ASKS,
    Victim,
    administer,
    attack,
    attack_everywhere,
    consume,
    consume_in_a_group,
    mishaps,
    produce,
)
from tests.support.fake_broker import FakeBroker

Lie = Callable[[Any], Any]
EVERYONE = tuple(ASKS)


def tell(api: ApiKey, lie: Lie) -> Callable[[FakeBroker], None]:
    """Let ``lie`` change the broker's answers to ``api``."""

    def harm(broker: FakeBroker) -> None:
        honest = broker.handlers[api]

        async def lying(request: Any) -> Any:
            response = honest(request)
            if hasattr(response, "__await__"):
                response = await response
            changed = lie(response)
            return response if changed is None else changed

        broker.handlers[api] = lying

    return harm


async def fared(
    lies: Mapping[str, tuple[ApiKey, Lie]], victims: tuple[Victim, ...]
) -> dict[str, str]:
    """Attack each victim with each lie, all at once; return the outcomes."""
    places = [(name, lie, victim) for name, lie in lies.items() for victim in victims]
    ends = await asyncio.gather(*(attack(victim, tell(*lie)) for _, lie, victim in places))
    return {
        f"{victim.__name__}, told of {name}": end
        for (name, _, victim), end in zip(places, ends, strict=True)
    }


# Versions.


def spoken_from(low: int, high: int) -> Lie:
    """Claim the same versions for every API."""
    versions = [ApiVersion(api_key=api, min_version=low, max_version=high) for api in ApiKey]
    return lambda _: ApiVersionsResponse(api_keys=versions)


async def test_unknown_versions_raise_an_error() -> None:
    lies = {
        "versions from 99 on": spoken_from(99, 100),
        "versions backwards": spoken_from(5, 2),
        "negative versions": spoken_from(-5, -1),
        "no versions": lambda _: ApiVersionsResponse(),
    }
    ends = await fared({name: (ApiKey.API_VERSIONS, lie) for name, lie in lies.items()}, EVERYONE)
    assert set(ends.values()) == {"ApiError"}


# Metadata.


def without_brokers(response: MetadataResponse) -> None:
    response.brokers = []


def with_broker_at(host: str, port: int) -> Lie:
    def lie(response: MetadataResponse) -> None:
        response.brokers[0].host, response.brokers[0].port = host, port

    return lie


def without_topics(response: MetadataResponse) -> None:
    response.topics = []


def without_partitions(response: MetadataResponse) -> None:
    for topic in response.topics:
        topic.partitions = []


def with_partition(index: int, leader: int = 1) -> Lie:
    def lie(response: MetadataResponse) -> None:
        for topic in response.topics:
            topic.partitions = [MetadataResponsePartition(partition_index=index, leader_id=leader)]

    return lie


def with_partitions_twice(response: MetadataResponse) -> None:
    for topic in response.topics:
        topic.partitions = topic.partitions * 2


def about_another_topic(response: MetadataResponse) -> None:
    for topic in response.topics:
        topic.name = "another"


def without_names(response: MetadataResponse) -> None:
    for topic in response.topics:
        topic.name = None


def with_strange_errors(response: MetadataResponse) -> None:
    for topic in response.topics:
        topic.error_code = 12_345


METADATA_LIES = {
    "no brokers": without_brokers,
    "a broker at no host": with_broker_at("", 9092),
    "a broker at a zero byte": with_broker_at("\0", 9092),
    "a broker at a very long name": with_broker_at("a" * 300 + ".b", 9092),
    "a broker at a label too long": with_broker_at("a" * 64, 9092),
    "a broker at a surrogate": with_broker_at("\u3002\u3002", 9092),
    "a broker at port 0": with_broker_at("127.0.0.1", 0),
    "a broker at port -1": with_broker_at("127.0.0.1", -1),
    "a broker at port 70000": with_broker_at("127.0.0.1", 70_000),
    "no topics": without_topics,
    "no partitions": without_partitions,
    "partition -1": with_partition(-1),
    "partition 2147483647": with_partition(2**31 - 1),
    "a leader that does not exist": with_partition(0, leader=77),
    "a negative leader": with_partition(0, leader=-5),
    "partitions twice": with_partitions_twice,
    "another topic": about_another_topic,
    "nameless topics": without_names,
    "an unknown error": with_strange_errors,
}


async def test_lies_about_metadata_do_no_harm() -> None:
    lies = {name: (ApiKey.METADATA, lie) for name, lie in METADATA_LIES.items()}
    assert mishaps(await fared(lies, (produce, consume, administer))) == {}


# Groups.


def coordinated_at(host: str, port: int) -> Lie:
    def lie(_: FindCoordinatorResponse) -> FindCoordinatorResponse:
        found = Coordinator(key="g", node_id=1, host=host, port=port)
        return FindCoordinatorResponse(coordinators=[found])

    return lie


def by_nobody(response: FindCoordinatorResponse) -> None:
    response.coordinators = []


def by_two(response: FindCoordinatorResponse) -> None:
    response.coordinators = response.coordinators * 2


def joined_by(metadata: bytes) -> Lie:
    def lie(response: JoinGroupResponse) -> None:
        if response.members:
            response.members = [
                JoinGroupResponseMember(member_id=member.member_id, metadata=metadata)
                for member in response.members
            ]

    return lie


def led_by_a_stranger(response: JoinGroupResponse) -> None:
    response.leader = "nobody"


def in_another_protocol(response: JoinGroupResponse) -> None:
    response.protocol_name = "never-heard-of"


def assigned(data: bytes) -> Lie:
    return lambda _: SyncGroupResponse(assignment=data)


def refused(code: int) -> Lie:
    def lie(response: Any) -> None:
        response.error_code = code

    return lie


_ONE_TOPIC = b"\0\0\0\1\0\1"
GROUP_LIES: dict[str, tuple[ApiKey, Lie]] = {
    "no coordinator": (ApiKey.FIND_COORDINATOR, by_nobody),
    "two coordinators": (ApiKey.FIND_COORDINATOR, by_two),
    "a coordinator at port 0": (ApiKey.FIND_COORDINATOR, coordinated_at("127.0.0.1", 0)),
    "a coordinator at port -7": (ApiKey.FIND_COORDINATOR, coordinated_at("127.0.0.1", -7)),
    "a coordinator nowhere": (ApiKey.FIND_COORDINATOR, coordinated_at("", 9092)),
    "an empty subscription": (ApiKey.JOIN_GROUP, joined_by(b"")),
    "a cut subscription": (ApiKey.JOIN_GROUP, joined_by(b"\0\1\0\0")),
    "two billion subscriptions": (ApiKey.JOIN_GROUP, joined_by(b"\0\1\x7f\xff\xff\xff")),
    "a stranger as leader": (ApiKey.JOIN_GROUP, led_by_a_stranger),
    "another protocol": (ApiKey.JOIN_GROUP, in_another_protocol),
    "an unknown error of joining": (ApiKey.JOIN_GROUP, refused(12_345)),
    "a cut assignment": (ApiKey.SYNC_GROUP, assigned(b"\0\0\0")),
    "two billion topics": (ApiKey.SYNC_GROUP, assigned(b"\0\0\x7f\xff\xff\xff")),
    "two billion partitions": (
        ApiKey.SYNC_GROUP,
        assigned(b"\0\0" + _ONE_TOPIC + b"t\x7f\xff\xff\xff"),
    ),
    "a partition that does not exist": (
        ApiKey.SYNC_GROUP,
        assigned(b"\0\0" + _ONE_TOPIC + b"t\0\0\0\1\0\0\0\7\xff\xff\xff\xff"),
    ),
    "a negative partition": (
        ApiKey.SYNC_GROUP,
        assigned(b"\0\0" + _ONE_TOPIC + b"t\0\0\0\1\xff\xff\xff\xff\xff\xff\xff\xff"),
    ),
    "a topic that is not text": (
        ApiKey.SYNC_GROUP,
        assigned(b"\0\0" + _ONE_TOPIC + b"\xff\0\0\0\1\0\0\0\0\xff\xff\xff\xff"),
    ),
    "an unknown error of syncing": (ApiKey.SYNC_GROUP, refused(12_345)),
    "an unknown error of heartbeats": (ApiKey.HEARTBEAT, refused(12_345)),
}


async def test_lies_about_groups_do_no_harm() -> None:
    assert mishaps(await fared(GROUP_LIES, (consume_in_a_group,))) == {}


# Everything.


@pytest.mark.parametrize("step", range(4))
async def test_flipped_bytes_in_answers_do_no_harm(step: int) -> None:
    """A client ends in order, whichever bytes of an answer change."""
    seed = FIRST_SEED + step
    print("seed", seed)
    chance = random.Random(seed)

    def flip(frame: bytes) -> bytes:
        flipped = bytearray(frame)
        for _ in range(chance.randrange(1, 4)):
            if len(flipped) > 8:
                flipped[chance.randrange(8, len(flipped))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        return bytes(flipped)

    assert mishaps(await attack_everywhere(flip)) == {}


async def test_an_unknown_error_code_is_told() -> None:
    end = await attack(administer, tell(ApiKey.METADATA, with_strange_errors))
    assert end == ApiError.__name__
