"""Access rules are added and removed with compare-and-set, and every broker learns of it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from qbus.broker.controller import Controller
from qbus.broker.metadata.cache import MetadataCache
from qbus.config import BrokerConfig
from qbus.errors import ErrorCode
from qbus.metadata import Create, Delete, Set
from qbus.metadata.acls import LITERAL_ACLS, acl_path, decode_acls, encode_acls
from qbus.metadata.feed import announce
from qbus.metadata.znodes import ChangeNode
from qbus.security.acls import (
    Entry,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    Resource,
    ResourceType,
    Rule,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane

TOPIC = ResourceType.TOPIC
ALICE, HOST = "User:alice", "10.0.0.1"
READ = Operation.READ


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path) as made:
        yield made


class Other:
    """Another broker on the same store."""

    def __init__(self, plane: MetadataPlane) -> None:
        self.metadata = MetadataCache(plane.store, BrokerConfig({}))
        self.controller = Controller(
            plane.store, self.metadata, BrokerConfig({}), plane.clock, Random(2)
        )


@pytest.fixture
async def other(plane: MetadataPlane) -> AsyncIterator[Other]:
    made = Other(plane)
    await made.metadata.start()
    yield made
    await made.metadata.close()


def rule(name: str = "orders", operation: Operation = READ, **more: Any) -> Rule:
    pattern = Pattern(TOPIC, name, more.get("pattern", PatternType.LITERAL))
    permission = more.get("permission", Permission.ALLOW)
    return Rule(pattern, Entry(more.get("who", ALICE), "*", operation, permission))


def may_read(metadata: MetadataCache, name: str = "orders") -> bool:
    return metadata.acls.allows(ALICE, HOST, READ, Resource(TOPIC, name))


async def stored(plane: MetadataPlane, one: Rule) -> list[Entry] | None:
    node = await plane.store.get(acl_path(one.pattern))
    return None if node is None else decode_acls(node.data)


async def test_a_rule_counts_at_once_here_and_soon_elsewhere(
    plane: MetadataPlane, other: Other
) -> None:
    assert await plane.controller.acls.add([rule()]) == [None]
    assert may_read(plane.metadata)
    await other.metadata.catch_up()
    assert may_read(other.metadata)
    assert await stored(plane, rule()) == [rule().entry]


async def test_rules_of_many_patterns_are_one_change(plane: MetadataPlane) -> None:
    many = [rule(f"topic-{number}") for number in range(350)]
    prefixes = [rule(f"t{number}", pattern=PatternType.PREFIXED) for number in range(5)]
    assert set(await plane.controller.acls.add([*many, *prefixes, many[0]])) == {None}
    assert len(plane.metadata.acls) == 355
    assert set(plane.metadata.acls.find(Filter())) == {*many, *prefixes}


async def test_what_is_there_already_writes_nothing(plane: MetadataPlane) -> None:
    await plane.controller.acls.add([rule()])
    before = await plane.store.get(acl_path(rule().pattern))
    assert await plane.controller.acls.add([rule()]) == [None]
    assert await plane.store.get(acl_path(rule().pattern)) == before


async def test_brokers_that_add_at_the_same_time_lose_nothing(
    plane: MetadataPlane, other: Other
) -> None:
    rules = [rule(who=f"User:{number}") for number in range(40)]
    done = await asyncio.gather(
        *(plane.controller.acls.add([one]) for one in rules[::2]),
        *(other.controller.acls.add([one]) for one in rules[1::2]),
    )
    kept = {one.entry for one in rules}
    refused = [error for (error,) in done if error is not None]
    assert {error.code for error in refused} <= {ErrorCode.NOT_CONTROLLER}
    entries = await stored(plane, rule())
    assert entries is not None
    assert len(entries) == len(set(entries)) == 40 - len(refused)
    assert set(entries) <= kept


async def test_removed_rules_are_told_and_gone(plane: MetadataPlane, other: Other) -> None:
    rules = [rule(), rule(operation=Operation.WRITE), rule("payments"), rule(who="User:bob")]
    await plane.controller.acls.add(rules)
    found = await other.controller.acls.remove(
        [
            Filter(TOPIC, "orders", principal=ALICE),
            Filter(TOPIC, "nothing"),
            Filter(principal=ALICE),
        ]
    )
    told = [{one.rule for one in some} for some in found]
    assert told == [{rules[0], rules[1]}, set(), {rules[0], rules[1], rules[2]}]
    assert {one.error for some in found for one in some} == {None}
    await plane.metadata.catch_up()
    assert set(plane.metadata.acls.find(Filter())) == {rules[3]}
    assert await stored(plane, rules[2]) is None  # Kafka leaves no empty nodes either


async def test_another_broker_removes_what_it_has_not_heard_of_yet(
    plane: MetadataPlane, other: Other
) -> None:
    await plane.controller.acls.add([rule()])
    (found,) = await other.controller.acls.remove([Filter()])
    assert [one.rule for one in found] == [rule()]


async def test_a_rule_removed_and_added_meanwhile_is_not_written_over(
    plane: MetadataPlane, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node is another one of the same version by then."""
    await plane.controller.acls.add([rule()])
    get_many, is_first = plane.store.get_many, True

    async def interleaved(paths: Any) -> Any:
        nonlocal is_first
        nodes = await get_many(paths)
        if is_first:
            is_first = False
            fence = await plane.store.get(LITERAL_ACLS)
            assert fence is not None
            path = acl_path(rule().pattern)
            denial = rule(permission=Permission.DENY).entry
            await plane.store.transaction(
                [
                    Set(LITERAL_ACLS, b"", fence.version),
                    Delete(path),
                    Create(path, encode_acls([denial])),
                    announce(ChangeNode(acls=(path,)).encode()),
                ]
            )
        return nodes

    monkeypatch.setattr(plane.store, "get_many", interleaved)
    await plane.controller.acls.add([rule(operation=Operation.WRITE)])
    monkeypatch.undo()
    entries = await stored(plane, rule())
    assert entries == [
        rule(permission=Permission.DENY).entry,
        rule(operation=Operation.WRITE).entry,
    ]


async def test_a_malformed_node_denies_and_is_said(
    plane: MetadataPlane, other: Other, caplog: pytest.LogCaptureFixture
) -> None:
    await plane.controller.acls.add([rule(), rule("*"), rule("payments")])
    path = acl_path(rule().pattern)
    with caplog.at_level(logging.ERROR):
        await plane.store.transaction(
            [Set(path, b'{"version":9}'), announce(ChangeNode(acls=(path,)).encode())]
        )
        for metadata in (plane.metadata, other.metadata):
            await metadata.catch_up()
            assert not may_read(metadata)  # although the rule of * allows it
            assert may_read(metadata, "payments")
    assert "the access rules of literal topic 'orders' cannot be read" in caplog.text


async def test_a_malformed_node_is_not_written_over(plane: MetadataPlane) -> None:
    path = acl_path(rule().pattern)
    await plane.store.transaction(
        [Create(path, b"garbage"), announce(ChangeNode(acls=(path,)).encode())]
    )
    refused, added = await plane.controller.acls.add([rule(), rule("payments")])
    assert added is None
    assert refused is not None
    assert refused.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert path in str(refused)
    node = await plane.store.get(path)
    assert node is not None
    assert node.data == b"garbage"


async def test_a_node_that_was_mended_counts_again(plane: MetadataPlane) -> None:
    path = acl_path(rule().pattern)
    for data, expected in ((b"", False), (encode_acls([rule().entry]), True), (b"{}", False)):
        node = await plane.store.get(path)
        write = Create(path, data) if node is None else Set(path, data)
        await plane.store.transaction([write, announce(ChangeNode(acls=(path,)).encode())])
        await plane.metadata.catch_up()
        assert may_read(plane.metadata) is expected


async def test_rules_that_kafka_wrote_are_read_and_joined_with_ours(plane: MetadataPlane) -> None:
    group = Pattern(ResourceType.GROUP, "my group")
    entries = [Entry(f"User:{name}", "*", READ, Permission.ALLOW) for name in "ab"]
    former = "/kafka-acl/Group/my group"
    await plane.store.transaction(
        [
            Create(former, encode_acls(entries[:1])),
            announce(ChangeNode(acls=(former,)).encode()),
        ]
    )
    await plane.controller.acls.add([Rule(group, entries[1])])
    assert plane.metadata.acls.entries(group) == entries
    assert await plane.store.get(former) is None
    node = await plane.store.get(acl_path(group))
    assert node is not None
    assert decode_acls(node.data) == entries


async def test_a_broker_that_starts_knows_every_rule(plane: MetadataPlane) -> None:
    rules = [rule(), rule("pre", pattern=PatternType.PREFIXED), rule("*", Operation.WRITE)]
    await plane.controller.acls.add(rules)
    late = MetadataCache(plane.store, BrokerConfig({}))
    await late.start()
    assert set(late.acls.find(Filter())) == set(rules)
    await late.close()


async def test_a_broker_that_missed_changes_forgets_rules_that_are_gone(
    plane: MetadataPlane, other: Other
) -> None:
    await plane.controller.acls.add([rule(), rule("payments")])
    await other.metadata.catch_up()
    # Removed without a word on the feed, and read again as after changes that were pruned.
    await plane.store.transaction([Delete(acl_path(rule().pattern))])
    await other.metadata._load()
    assert not may_read(other.metadata)
    assert may_read(other.metadata, "payments")


async def test_while_the_store_cannot_be_read_decisions_stay_as_they_were(
    plane: MetadataPlane, other: Other
) -> None:
    await plane.controller.acls.add([rule()])
    await other.metadata.catch_up()
    await other.metadata.close()  # as with a session that is lost
    await plane.controller.acls.remove([Filter()])
    assert may_read(other.metadata)
    assert not may_read(other.metadata, "payments")


async def test_super_users_and_what_is_open_by_default_are_configured(tmp_path: Path) -> None:
    static = {"super.users": "User:root", "allow.everyone.if.no.acl.found": "true"}
    async with metadata_plane(tmp_path, static) as plane:
        acls = plane.metadata.acls
        assert acls.allows(ALICE, HOST, READ, Resource(TOPIC, "orders"))
        await plane.controller.acls.add([rule(permission=Permission.DENY)])
        assert not acls.allows(ALICE, HOST, READ, Resource(TOPIC, "orders"))
        assert acls.allows("User:root", HOST, READ, Resource(TOPIC, "orders"))
