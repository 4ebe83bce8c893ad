"""The znodes of a group, and the transactions that change them."""

import json
import struct
from unittest.mock import AsyncMock

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from qbus.broker.group.group import EMPTY_IMAGE, GroupImage
from qbus.broker.group.loader import GroupLoader
from qbus.broker.group.members import MemberImage
from qbus.broker.group.offsets import Offset
from qbus.broker.group.requests import GroupProtocol
from qbus.broker.group.state import GroupState
from qbus.broker.group.znodes import (
    MAX_OPS,
    GroupChange,
    GroupZnodes,
    MalformedGroupError,
    OffsetsLayout,
)
from qbus.errors import ApiError
from qbus.metadata import Check, Create, Delete, NoNode, Set

from .shell import DirectStore

NAMES = st.text(max_size=8)


def assignment(*partitions: int) -> bytes:
    count = len(partitions)
    return struct.pack(f">hih1si{count}i", 0, 1, 1, b"t", count, *partitions) + b"\xff\xff\xff\xff"


def member(name: str, *partitions: int) -> MemberImage:
    protocols = (GroupProtocol("range", b"\0\xff"),)
    given = assignment(*partitions) if partitions else b""
    return MemberImage(name, None, "client", "10.0.0.1", 10_000, 60_000, protocols, given)


def image(*members: MemberImage, generation: int = 1) -> GroupImage:
    if not members:
        return EMPTY_IMAGE._replace(generation=generation)
    leader = members[0].member_id
    return GroupImage(GroupState.STABLE, generation, "consumer", "range", leader, members)


def apply(store: DirectStore, stored: GroupZnodes, change: GroupChange) -> None:
    for operations in stored.plan(change):
        store.database.begin()
        try:
            store.database.apply(operations)
        finally:
            store.database.commit()
    stored.apply(change)


async def load(store: DirectStore, group_id: str = "g") -> tuple[GroupZnodes, GroupImage, int]:
    return await GroupLoader(store, {}).load(group_id, 0)


@pytest.fixture
def store() -> DirectStore:
    return DirectStore()


class TestLayout:
    def test_is_readable_by_people(self, store: DirectStore) -> None:
        offset = Offset(1030430, 3, "note", 1_000, None, b"\1" * 16)
        change = GroupChange(image(member("a", 0, 1)), 77, {("t", 0): offset})
        apply(store, GroupZnodes("my group"), change)

        tree = {path: node.data for path, node in store.database.tree("/consumers").items()}
        texts = {path: data.decode() for path, data in tree.items() if data}
        group = json.loads(texts.pop("/consumers/my%20group"))
        assert f"/consumers/my%20group/fence-{group['fence']}" in tree
        stored_member = json.loads(texts.pop("/consumers/my%20group/ids/a"))
        commit = json.loads(texts.pop("/consumers/my%20group/offsets/t/0/commit"))

        assert texts == {
            "/consumers/my%20group/offsets/t/0": "1030430",
            "/consumers/my%20group/owners/t/0": "a",
            "/consumers/my%20group/owners/t/1": "a",
        }
        assert group == {
            "version": 1,
            "state": "Stable",
            "generation": 1,
            "protocol_type": "consumer",
            "protocol": "range",
            "leader": "a",
            "timestamp": 77,
            "fence": group["fence"],
        }
        assert stored_member["client_id"] == "client"
        assert stored_member["protocols"] == [{"name": "range", "metadata": "AP8="}]
        assert commit == {
            "version": 1,
            "leader_epoch": 3,
            "metadata": "note",
            "timestamp": 1_000,
            "expires": None,
            "topic_id": "01" * 16,
        }

    def test_of_a_steady_commit_is_one_check_and_one_set(self, store: DirectStore) -> None:
        stored = GroupZnodes("g")
        apply(store, stored, GroupChange(image(), 0, {("t", 0): Offset(1)}))

        (operations,) = stored.plan(GroupChange(offsets={("t", 0): Offset(2)}))

        assert operations == [
            Check(f"/consumers/g/fence-{stored.fence}"),
            Set("/consumers/g/offsets/t/0", b"2"),
        ]

    def test_shows_no_owners_of_groups_that_are_no_consumers(self, store: DirectStore) -> None:
        connect = image(member("a", 0))._replace(protocol_type="connect")
        apply(store, GroupZnodes("g"), GroupChange(connect))

        assert store.database.children("/consumers/g/owners") == []

    def test_shows_no_owners_where_there_are_too_many(self, store: DirectStore) -> None:
        apply(store, GroupZnodes("g"), GroupChange(image(member("a", *range(10_001)))))

        assert store.database.children("/consumers/g/owners") == []

    @pytest.mark.parametrize(
        ("path", "data"),
        [
            ("/consumers/g", b"\xff"),
            ("/consumers/g", b"[]"),
            ("/consumers/g", b'{"version":2}'),
            ("/consumers/g", b'{"version":1}'),
            ("/consumers/g", b'{"version":1,"state":"Dead"}'),
            ("/consumers/g/ids/a", b"{}"),
            ("/consumers/g/ids/a", b'{"version":1,"protocols":[1]}'),
            ("/consumers/g/offsets/t/0", b"many"),
            ("/consumers/g/offsets/t/0/commit", b"{"),
            ("/consumers/g/owners/t/0", b"\xff"),
        ],
    )
    async def test_of_another_making_is_told_apart(
        self, store: DirectStore, path: str, data: bytes
    ) -> None:
        change = GroupChange(image(member("a", 0)), 0, {("t", 0): Offset(1)})
        apply(store, GroupZnodes("g"), change)
        store.database.begin()
        store.database.apply([Set(path, data)])
        store.database.commit()

        with pytest.raises(MalformedGroupError):
            await load(store)

    async def test_that_contradicts_itself_is_told_apart(self, store: DirectStore) -> None:
        apply(store, GroupZnodes("g"), GroupChange(image(member("a"))._replace(leader="b")))
        empty = image(member("a"))._replace(state=GroupState.EMPTY)
        apply(store, GroupZnodes("h"), GroupChange(empty))
        apply(store, GroupZnodes("i"), GroupChange(image()._replace(state=GroupState.STABLE)))

        for group_id in ("g", "h", "i"):
            with pytest.raises(MalformedGroupError):
                await load(store, group_id)


class TestFencing:
    @pytest.mark.parametrize("is_made_anew", [False, True])
    async def test_the_former_coordinator_cannot_write(
        self, store: DirectStore, is_made_anew: bool
    ) -> None:
        """Even if another group of the same name has reached the same version."""
        zombie = GroupZnodes("g")
        apply(store, zombie, GroupChange(image(), 0, {("t", 0): Offset(5)}))
        live, _, _ = await load(store)
        if is_made_anew:
            apply(store, live, GroupChange(remove=True))
            apply(store, live, GroupChange(image(), 0, {("t", 0): Offset(5)}))
            assert live.version == zombie.version
        before = store.database.tree("/consumers")

        for change in (
            GroupChange(offsets={("t", 0): Offset(1)}),
            GroupChange(image(generation=2)),
            GroupChange(remove=True),
        ):
            with pytest.raises(NoNode):
                apply(store, zombie, change)
        assert store.database.tree("/consumers") == before

    async def test_an_outdated_read_does_not_load_a_group(self, store: DirectStore) -> None:
        """The group was deleted and created again since the read, and has the same version."""
        stored = GroupZnodes("g")
        apply(store, stored, GroupChange(image(), 1))
        past = store.database.get("/consumers/g")
        apply(store, stored, GroupChange(remove=True))
        apply(store, stored, GroupChange(image(), 2))
        get, before = store.get, store.database.tree("/consumers")
        store.get = AsyncMock(return_value=past)  # type: ignore[method-assign]

        with pytest.raises(ApiError):
            await load(store)
        assert store.database.tree("/consumers") == before

        store.get = get  # type: ignore[method-assign]
        _, _, since_ms = await load(store)
        assert since_ms == 2

    async def test_a_group_that_is_older_than_fences_gets_one(self, store: DirectStore) -> None:
        stored = GroupZnodes("g")
        apply(store, stored, GroupChange(image(), 1))
        old = json.loads(store.data("/consumers/g") or b"")
        del old["fence"]
        store.database.begin()
        store.database.apply(
            [
                Set("/consumers/g", json.dumps(old).encode()),
                Delete(f"/consumers/g/fence-{stored.fence}"),
            ]
        )
        store.database.commit()
        loaded, _, _ = await load(store)
        apply(store, loaded, GroupChange(offsets={("t", 0): Offset(1)}))
        apply(store, loaded, GroupChange(remove=True))
        assert store.database.children("/consumers") == []

    def test_every_part_of_a_large_write_does(self) -> None:
        stored = GroupZnodes("g")
        stored.apply(GroupChange(image()))
        offsets = {("t", i): Offset(i) for i in range(2_000)}

        parts = stored.plan(GroupChange(image(generation=2), 0, dict(offsets)))
        stored.apply(GroupChange(image(generation=2), 0, dict(offsets)))
        removal = stored.plan(GroupChange(remove=True))

        fence = Check(f"/consumers/g/fence-{stored.fence}")
        assert [part[0] for part in parts] == [fence] * len(parts)
        assert isinstance(parts[0][1], Set)
        assert [part[0] for part in removal[:-1]] == [fence] * (len(removal) - 1)
        assert removal[-1][0] == Delete(fence.path)
        assert max(map(len, [*parts, *removal])) <= MAX_OPS

    def test_what_is_few_but_large_is_parted_as_well(self) -> None:
        stored = GroupZnodes("g")
        stored.apply(GroupChange(image()))
        offsets = {("t", i): Offset(i, metadata="x" * 4_000) for i in range(400)}

        parts = stored.plan(GroupChange(offsets=dict(offsets)))

        assert sum(len(part) for part in parts) == len(parts) + 1 + 2 * len(offsets)
        for part in parts:
            assert part[0] == Check(f"/consumers/g/fence-{stored.fence}")
            assert sum(len(op.data) for op in part if isinstance(op, Create)) < 1 << 20

    def test_a_group_and_its_members_change_in_one_transaction(self) -> None:
        stored = GroupZnodes("g")
        members = [member(f"m{i:04}", i) for i in range(1_500)]

        first, *rest = stored.plan(GroupChange(image(*members)))

        assert len(first) == 5 + len(members)
        assert all("/owners" in operation.path for part in rest for operation in part[1:])


members = st.lists(
    st.builds(
        MemberImage,
        NAMES,
        st.none() | NAMES,
        NAMES,
        NAMES,
        st.integers(0, 10**6),
        st.integers(-1, 10**6),
        st.lists(st.builds(GroupProtocol, NAMES, st.binary(max_size=5)), max_size=2).map(tuple),
        st.binary(max_size=5)
        | st.lists(st.integers(0, 5), max_size=3).map(lambda p: assignment(*p)),
    ),
    max_size=3,
    unique_by=lambda item: item.member_id,
)
offsets = st.dictionaries(
    st.tuples(st.sampled_from(["t", "u/..", ".", ""]), st.integers(0, 3)),
    st.none()
    | st.builds(
        Offset,
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 5),
        NAMES,
        st.integers(0, 10**13),
        st.none() | st.integers(0, 10**13),
        st.binary(min_size=16, max_size=16),
    ),
    max_size=4,
)
changes = st.lists(
    st.one_of(
        st.builds(lambda some, at: GroupChange(image(*some), at), members, st.integers(0, 10**13)),
        st.builds(lambda some: GroupChange(image(), 0, some), offsets),
        st.just(GroupChange(remove=True)),
    ),
    max_size=8,
)


@settings(max_examples=80)
@given(NAMES, changes)
async def test_what_is_stored_is_what_was_last_said_and_nothing_else(
    group_id: str, history: list[GroupChange]
) -> None:
    store = DirectStore()
    stored, said = GroupZnodes(group_id), EMPTY_IMAGE
    for change in history:
        apply(store, stored, change)
        said = EMPTY_IMAGE if change.remove else change.image or said

    loaded, found, _ = await load(store, group_id)

    assert found._replace(members=()) == said._replace(members=())
    assert set(found.members) == set(said.members)
    assert loaded.version == (None if stored.version is None else stored.version + 1)
    assert loaded.members == stored.members
    assert loaded.owners == stored.owners
    assert loaded.offsets == stored.offsets
    if stored.version is None:
        assert store.database.children("/consumers") == []
    await store.close()


class TestOneNodeForATopic:
    """The layout ``topic``."""

    def fresh(self) -> GroupZnodes:
        return GroupZnodes("g", OffsetsLayout.TOPIC)

    async def loaded(self, store: DirectStore, layout: OffsetsLayout) -> GroupZnodes:
        znodes, _, _ = await GroupLoader(store, {}, layout).load("g", 0)
        return znodes

    async def offsets(self, store: DirectStore) -> dict[str, dict[int, Offset]]:
        return (await load(store))[0].offsets

    def test_is_readable_by_people(self, store: DirectStore) -> None:
        offsets = {("t", 0): Offset(5, 1), ("t", 1): Offset(6, 1), ("t", 2): Offset(7, 2, "note")}
        apply(store, self.fresh(), GroupChange(image(), 0, dict(offsets)))

        node = json.loads(store.data("/consumers/g/offsets/t") or b"")

        assert node["version"] == 1
        assert [(commit["leader_epoch"], commit["offsets"]) for commit in node["commits"]] == [
            (1, {"0": 5, "1": 6}),
            (2, {"2": 7}),
        ]
        assert store.database.children("/consumers/g/offsets/t") == []

    def test_makes_a_commit_of_many_partitions_one_write(self, store: DirectStore) -> None:
        stored = self.fresh()
        offsets = {("t", index): Offset(index) for index in range(500)}
        apply(store, stored, GroupChange(image(), 0, dict(offsets)))

        (operations,) = stored.plan(GroupChange(offsets=dict(offsets)))

        assert [type(operation) for operation in operations] == [Check, Set]

    async def test_is_read_whatever_is_configured(self, store: DirectStore) -> None:
        change = GroupChange(image(), 0, {("t", 0): Offset(5, 1, "n", 9, 10, b"i" * 16)})
        apply(store, self.fresh(), change)

        assert await self.offsets(store) == {"t": {0: Offset(5, 1, "n", 9, 10, b"i" * 16)}}

    @pytest.mark.parametrize("count", [1, 3, 700])
    async def test_takes_over_with_the_next_commit_to_the_topic(
        self, store: DirectStore, count: int
    ) -> None:
        old: dict[tuple[str, int], Offset | None] = {
            ("t", index): Offset(index) for index in range(count)
        }
        apply(store, GroupZnodes("g"), GroupChange(image(), 0, old | {("u", 0): Offset(1)}))

        stored = await self.loaded(store, OffsetsLayout.TOPIC)
        apply(store, stored, GroupChange(offsets={("t", 0): Offset(9)}))

        assert store.database.children("/consumers/g/offsets/t") == []
        assert store.database.children("/consumers/g/offsets/u") == ["0"]
        expected = {index: Offset(index) for index in range(count)} | {0: Offset(9)}
        assert (await self.offsets(store))["t"] == expected

    @pytest.mark.parametrize("count", [1, 3, 700])
    async def test_gives_way_with_the_next_commit_to_the_topic(
        self, store: DirectStore, count: int
    ) -> None:
        offsets: dict[tuple[str, int], Offset | None] = {
            ("t", index): Offset(index) for index in range(count)
        }
        apply(store, self.fresh(), GroupChange(image(), 0, offsets))

        stored = await self.loaded(store, OffsetsLayout.PARTITION)
        apply(store, stored, GroupChange(offsets={("t", 0): Offset(9)}))

        assert store.data("/consumers/g/offsets/t") == b""
        assert store.data("/consumers/g/offsets/t/0") == b"9"
        assert len((await self.offsets(store))["t"]) == count

    def test_gives_way_where_a_topic_has_too_many_partitions(self, store: DirectStore) -> None:
        stored = self.fresh()
        apply(store, stored, GroupChange(image(), 0, {("t", i): Offset(i) for i in range(1_000)}))
        assert store.data("/consumers/g/offsets/t") != b""

        apply(store, stored, GroupChange(offsets={("t", 1_000): Offset(1)}))

        assert store.data("/consumers/g/offsets/t") == b""
        assert len(store.database.children("/consumers/g/offsets/t")) == 1_001

    @pytest.mark.parametrize("after", range(1, 4))
    @pytest.mark.parametrize("to", OffsetsLayout)
    async def test_a_change_that_ends_halfway_loses_nothing(
        self, store: DirectStore, to: OffsetsLayout, after: int
    ) -> None:
        """The transactions that were done are seen, the last ones never happened."""
        former = next(layout for layout in OffsetsLayout if layout is not to)
        old: dict[tuple[str, int], Offset | None] = {("t", i): Offset(i) for i in range(900)}
        apply(store, GroupZnodes("g", former), GroupChange(image(), 0, old))
        stored = await self.loaded(store, to)
        for operations in stored.plan(GroupChange(offsets={("t", 0): Offset(77)}))[:after]:
            store.database.begin()
            store.database.apply(operations)
            store.database.commit()

        again = await self.loaded(store, to)
        first = again.offsets["t"].pop(0)
        assert first in {Offset(0), Offset(77)}
        assert again.offsets["t"] == {i: Offset(i) for i in range(1, 900)}
        again.offsets["t"][0] = first
        apply(store, again, GroupChange(offsets={("t", 1): Offset(78)}))

        last = (await self.offsets(store))["t"]
        assert (last[0], last[1]) == (first, Offset(78))
        assert len(last) == 900

    def test_of_a_topic_without_offsets_goes(self, store: DirectStore) -> None:
        stored = self.fresh()
        apply(store, stored, GroupChange(image(), 0, {("t", 0): Offset(1), ("t", 1): Offset(1)}))

        apply(store, stored, GroupChange(offsets={("t", 0): None}))
        assert store.data("/consumers/g/offsets/t") is not None
        apply(store, stored, GroupChange(offsets={("t", 1): None}))

        assert store.database.children("/consumers/g/offsets") == []
        apply(store, stored, GroupChange(remove=True))
        assert store.database.children("/consumers") == []

    @pytest.mark.parametrize("data", [b"5", b"{", b'{"version":1}', b'{"version":1,"commits":[7]}'])
    async def test_of_another_making_is_told_apart(self, store: DirectStore, data: bytes) -> None:
        apply(store, self.fresh(), GroupChange(image(), 0, {("t", 0): Offset(1)}))
        store.database.begin()
        store.database.apply([Set("/consumers/g/offsets/t", data)])
        store.database.commit()

        with pytest.raises(MalformedGroupError):
            await load(store)


class TestPendingOffsets:
    async def test_are_loaded_as_they_were_stored(self, store: DirectStore) -> None:
        brought = {("a/b", 0): Offset(5, 2, "note", 9, None, b"i" * 16), ("u", 3): Offset(1)}
        change = GroupChange(image(), 0, pending={(7, 2): brought, (2**62, 0): {}})
        apply(store, GroupZnodes("g"), change)

        znodes, _, _ = await load(store)

        assert znodes.pending == {(7, 2): brought, (2**62, 0): {}}
        assert znodes.offsets == {}

    async def test_count_or_go_in_one_transaction(self, store: DirectStore) -> None:
        stored = GroupZnodes("g")
        apply(store, stored, GroupChange(image(), 0, pending={(7, 2): {("t", 0): Offset(5)}}))
        apply(store, stored, GroupChange(pending={(7, 2): {("t", 0): Offset(6)}}))

        end = GroupChange(offsets={("t", 0): Offset(6)}, pending={(7, 2): None})
        assert len(stored.plan(end)) == 1
        apply(store, stored, end)

        assert store.database.children("/consumers/g/pending") == []
        znodes, _, _ = await load(store)
        assert (znodes.offsets, znodes.pending) == ({"t": {0: Offset(6)}}, {})

    async def test_go_with_the_group(self, store: DirectStore) -> None:
        apply(
            store,
            GroupZnodes("g"),
            GroupChange(image(), 0, pending={(7, 2): {("t", 0): Offset(5)}}),
        )
        znodes, _, _ = await load(store)

        apply(store, znodes, GroupChange(remove=True))

        assert store.database.children("/consumers") == []

    @pytest.mark.parametrize(
        ("name", "data"),
        [
            ("7", b'{"version":1,"topics":{}}'),
            ("7-x", b'{"version":1,"topics":{}}'),
            ("7-2", b"{"),
            ("7-2", b'{"version":1}'),
            ("7-2", b'{"version":1,"topics":{"t":5}}'),
        ],
    )
    async def test_of_another_making_are_told_apart(
        self, store: DirectStore, name: str, data: bytes
    ) -> None:
        apply(store, GroupZnodes("g"), GroupChange(image(), 0))
        store.database.begin()
        store.database.apply([Create(f"/consumers/g/pending/{name}", data)])
        store.database.commit()

        with pytest.raises(MalformedGroupError):
            await load(store)
