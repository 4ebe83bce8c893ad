"""Missing parents are created in the same transaction, once each and in order."""

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.metadata import Check, Create, Delete, Op, Set
from qbus.metadata.zookeeper.library import (
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    exceptions,
    serialization,
)
from qbus.metadata.zookeeper.transactions import (
    Multi,
    Step,
    ancestors,
    encode_acl,
    parents_of,
    plan,
)


def planned(operations: Sequence[Op], *missing: str) -> list[str]:
    """The plan as text: ``+`` before a parent that is created."""
    return [
        ("" if step.is_asked_for else "+") + step.operation.path
        for step in plan(operations, missing)
    ]


def test_what_is_above_a_node() -> None:
    assert ancestors("/a/b/c") == ["/a/b", "/a"]
    assert ancestors("/a") == []
    assert ancestors("/") == []


def test_only_creations_need_parents_and_each_is_named_once() -> None:
    operations: list[Op] = [
        Set("/s/t", b""),
        Create("/a/b/c"),
        Create("/a/b/d"),
        Delete("/x/y"),
        Check("/z"),
    ]
    assert parents_of(operations) == ["/a/b", "/a"]


def test_nothing_is_added_where_nothing_is_missing() -> None:
    operations: list[Op] = [Create("/a/b"), Set("/a", b"x", 3), Delete("/c"), Check("/d", 1)]
    assert plan(operations, ()) == [Step(operation, True) for operation in operations]


def test_missing_parents_come_right_before_from_the_top_down() -> None:
    operations: list[Op] = [Check("/z"), Create("/a/b/c/d")]
    assert planned(operations, "/a/b", "/a/b/c") == ["/z", "+/a/b", "+/a/b/c", "/a/b/c/d"]


def test_a_parent_is_created_once_for_all_its_children() -> None:
    operations = [Create("/a/x"), Create("/a/y"), Create("/a/y/z")]
    assert planned(operations, "/a") == ["+/a", "/a/x", "/a/y", "/a/y/z"]


def test_below_what_is_new_everything_is_missing() -> None:
    operations = [Create("/t"), Create("/t/partitions/0/state"), Create("/t/partitions/1/state")]
    assert planned(operations) == [
        "/t",
        "+/t/partitions",
        "+/t/partitions/0",
        "/t/partitions/0/state",
        "+/t/partitions/1",
        "/t/partitions/1/state",
    ]


def test_what_was_deleted_before_is_missing() -> None:
    assert planned([Delete("/a"), Create("/a/b")]) == ["/a", "+/a", "/a/b"]
    assert planned([Create("/a"), Delete("/a"), Create("/a/b")]) == ["/a", "/a", "+/a", "/a/b"]


def test_the_name_of_a_sequential_node_is_not_known_before() -> None:
    operations = [Create("/q/n-", sequential=True), Create("/q/n-/x")]
    assert planned(operations, "/q/n-") == ["/q/n-", "+/q/n-", "/q/n-/x"]


paths = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(
    lambda names: "/" + "/".join(names)
)
transactions = st.lists(st.builds(Create, paths) | st.builds(Delete, paths), max_size=6)


@given(transactions, st.sets(paths))
def test_with_what_is_missing_known_no_creation_lacks_its_parent(
    operations: list[Op], there: set[str]
) -> None:
    there = {path for path in there if set(ancestors(path)) <= there}
    missing = {parent for parent in parents_of(operations) if parent not in there}
    for operation, _ in plan(operations, missing):
        if isinstance(operation, Create):
            if operation.path in there:
                return  # refused as it should be: what came before is what counts
            assert set(ancestors(operation.path)) <= there
            there.add(operation.path)
        elif any(operation.path in ancestors(path) for path in there):
            return  # not empty
        else:
            there.discard(operation.path)


CHROOT = "/chroot"
OPERATIONS: list[Op] = [
    Create("/ä", b"1234"),
    Create("/e", b"", ephemeral=True),
    Create("/s-", b"", sequential=True),
    Set("/ä", b"1234", 7),
    Check("/ä"),
    Delete("/ä", 3),
    Check("/"),
]


def as_kazoo_has_it(operation: Op, acl: Any) -> Any:
    path = CHROOT + operation.path if operation.path != "/" else CHROOT
    match operation:
        case Set(_, data, version):
            return serialization.SetData(path, data, version)
        case Create(_, data, ephemeral, sequential):
            return serialization.Create(path, data, acl, ephemeral + 2 * sequential)
        case Check(_, version):
            return serialization.CheckVersion(path, version)
        case Delete(_, version):
            return serialization.Delete(path, version)


@pytest.mark.parametrize("acl", [OPEN_ACL_UNSAFE, [*OPEN_ACL_UNSAFE, *CREATOR_ALL_ACL]])
def test_a_request_is_what_kazoo_would_send(acl: Any) -> None:
    request = Multi(plan(OPERATIONS, ()), CHROOT, encode_acl(acl))
    operations = [as_kazoo_has_it(operation, acl) for operation in OPERATIONS]

    assert request.serialize() == serialization.Transaction(operations).serialize()
    assert request.size == len(request.serialize()) + 8


def test_without_a_chroot_paths_are_as_they_are() -> None:
    request = Multi(plan([Check("/"), Check("/a")], ()), "", b"")
    operations = [serialization.CheckVersion("/", -1), serialization.CheckVersion("/a", -1)]

    assert request.serialize() == serialization.Transaction(operations).serialize()


def answered(*parts: bytes) -> list[Any]:
    data = b"reply header" + b"".join(parts) + struct.pack(">i?i", -1, True, -1)
    return Multi((), "", b"").deserialize(data, len(b"reply header"))


def test_answers_are_versions_paths_and_errors() -> None:
    stat = struct.pack(">qqqqiiiqiiq", 1, 2, 3, 4, 0, 6, 7, 8, 9, 10, 11)
    path = struct.pack(">i?ii3s", 1, False, -1, 3, b"/a1")
    there = struct.pack(">i?i", 13, False, -1)
    gone = struct.pack(">i?i", 2, False, -1)

    assert answered(struct.pack(">i?i", 5, False, -1) + stat, path, there, gone) == [
        0,
        "/a1",
        True,
        True,
    ]


def test_of_a_refused_transaction_each_operation_has_an_error() -> None:
    rolled_back, no_node = (struct.pack(">i?ii", -1, False, code, code) for code in (0, -101))

    first, second = answered(rolled_back, no_node)

    assert isinstance(first, exceptions.RolledBackError)
    assert isinstance(second, exceptions.NoNodeError)
