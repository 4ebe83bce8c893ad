"""Missing parents are created in the same transaction, once each and in order."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.metadata import Check, Create, Delete, Op, Set
from qbus.metadata.zookeeper.transactions import MAX_BYTES, Step, ancestors, parents_of, plan, size


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


@pytest.mark.parametrize(
    "operation", [Create("/ä", b"1234"), Set("/ä", b"1234"), Check("/ä"), Delete("/ä")]
)
def test_the_size_is_what_kazoo_sends(operation: Op) -> None:
    from qbus.metadata.zookeeper.library import OPEN_ACL_UNSAFE, serialization
    from qbus.metadata.zookeeper.transactions import _encodable, acl_size

    chroot = "/chroot"
    encoded = _encodable(operation, chroot, OPEN_ACL_UNSAFE)
    sent = len(serialization.Transaction([encoded, encoded]).serialize()) + 8
    assert size(plan([operation] * 2, ()), len(chroot), acl_size(OPEN_ACL_UNSAFE)) == sent
    assert sent < MAX_BYTES
