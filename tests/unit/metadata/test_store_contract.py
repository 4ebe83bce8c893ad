"""The contract of every metadata store."""

import asyncio
from collections.abc import Sequence

import pytest

from qbus.metadata import (
    Check,
    Create,
    Delete,
    MetadataStore,
    NoChildrenForEphemerals,
    Node,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SessionState,
    Set,
    StoreUnavailable,
    VersionConflict,
)
from tests.support.waiting import eventually

from .conftest import Backend

# Nodes


async def test_a_node_holds_what_was_put_there(store: MetadataStore) -> None:
    data = bytes(range(256))
    assert await store.transaction([Create("/a", data)]) == ["/a"]
    assert await store.get("/a") == Node(data, 0)


async def test_a_node_that_is_not_there_is_none(store: MetadataStore) -> None:
    assert await store.get("/nothing/here") is None
    assert await store.children("/nothing") == []
    assert await store.tree("/nothing") == {}


async def test_setting_counts_the_version_up(store: MetadataStore) -> None:
    await store.transaction([Create("/a")])
    assert await store.transaction([Set("/a", b"1")]) == [1]
    assert await store.transaction([Set("/a", b"2", version=1)]) == [2]
    assert await store.get("/a") == Node(b"2", 2)


async def test_deleting_starts_the_version_anew(store: MetadataStore) -> None:
    await store.transaction([Create("/a"), Set("/a", b"x")])
    assert await store.transaction([Delete("/a")]) == [None]
    assert await store.get("/a") is None
    await store.transaction([Create("/a")])
    assert await store.get("/a") == Node(b"", 0)


async def test_a_large_node_is_a_node(store: MetadataStore) -> None:
    data = b"x" * 900_000  # ZooKeeper takes up to 1 MiB
    await store.transaction([Create("/large", data)])
    assert await store.get("/large") == Node(data, 0)


async def test_missing_parents_are_made(store: MetadataStore) -> None:
    await store.transaction([Create("/a/b/c", b"x")])
    assert await store.get("/a/b") == Node(b"", 0)
    await store.transaction([Create("/a/b/d")])
    assert await store.children("/a/b") == ["c", "d"]


async def test_parents_are_made_only_with_what_they_are_for(store: MetadataStore) -> None:
    before = await store.tree("/")
    with pytest.raises(NoNode):
        await store.transaction([Create("/a/b/c"), Check("/none")])
    with pytest.raises(NoNode):
        await store.transaction([Check("/group"), Create("/group/offsets/topic/0")])
    assert await store.tree("/") == before


@pytest.mark.parametrize(
    "operations",
    [
        [Create("/a/b"), Create("/a/c"), Create("/a/c/d/e")],
        [Create("/t"), Create("/t/0/state"), Create("/t/1/state")],
        [Create("/a/b"), Delete("/a/b"), Create("/a/b/c")],
        [Create("/q/n-", sequential=True), Create("/q/other/x")],
        [Delete("/there/leaf"), Create("/there/leaf/below")],
        [Delete("/there/leaf"), Delete("/there"), Create("/there/leaf/below")],
    ],
    ids=repr,
)
async def test_parents_are_made_where_the_operations_before_leave_them_missing(
    store: MetadataStore, operations: list[Op]
) -> None:
    await store.transaction([Create("/there/leaf", b"x")])
    await store.transaction(operations)
    last = operations[-1].path
    assert await store.get(last) == Node(b"", 0)
    assert await store.get(last.rpartition("/")[0]) == Node(b"", 0)


async def test_many_at_once_make_the_same_parents(store: MetadataStore) -> None:
    await asyncio.gather(*(store.transaction([Create(f"/a/b/c/{i}")]) for i in range(50)))
    assert len(await store.children("/a/b/c")) == 50


# Children and trees


async def test_children_are_sorted_and_only_those_one_level_down(store: MetadataStore) -> None:
    await store.transaction([Create(f"/p/{name}/below") for name in ("b", "a", "B", "10", "9")])
    assert await store.children("/p") == ["10", "9", "B", "a", "b"]


async def test_the_root_has_children(store: MetadataStore) -> None:
    await store.transaction([Create("/one"), Create("/two")])
    assert {"one", "two"} <= set(await store.children("/"))


async def test_requests_are_timed(store: MetadataStore) -> None:
    before = sum(store.timings.counts)
    await store.transaction([Create("/timed")])
    await store.get("/timed")
    with pytest.raises(NodeExists):
        await store.transaction([Create("/timed")])
    assert sum(store.timings.counts) >= before + 3
    assert store.timings.seconds > 0


async def test_get_many_returns_existing_nodes(store: MetadataStore) -> None:
    names = [f"/many/{number}" for number in range(250)]
    await store.transaction([Create(name, name.encode()) for name in names])
    await store.transaction([Set(names[7], b"other")])
    found = await store.get_many(["/none", *names, "/many/none"])
    assert list(found) == names
    assert (found[names[7]], found[names[249]]) == (Node(b"other", 1), Node(b"/many/249", 0))
    assert await store.get_many([]) == {}
    with pytest.raises(ValueError, match="not a path"):
        await store.get_many(["/fine", "relative"])


async def test_a_tree_is_everything_below_and_nothing_beside(store: MetadataStore) -> None:
    inside = ["/t", "/t/a", "/t/a/b", "/t/z", "/t/~/x", "/t/-/x"]
    outside = ["/t-/x", "/t./x", "/t0/x", "/tt/x", "/t~/x", "/u/t/a", "/s"]
    await store.transaction([Create(path, b"x") for path in inside + outside])
    assert (await store.tree("/t")).keys() == {*inside, "/t/~", "/t/-"}
    assert (await store.tree("/t"))["/t/a/b"] == Node(b"x", 0)
    assert {*inside, *outside} <= (await store.tree("/")).keys()


async def test_the_root_is_a_node_that_is_always_there(store: MetadataStore) -> None:
    assert await store.tree("/") == {"/": Node(b"", 0)}
    with pytest.raises(NotEmpty):
        await store.transaction([Delete("/")])
    with pytest.raises(NodeExists):
        await store.transaction([Create("/")])
    assert await store.transaction([Check("/", 0), Set("/", b"x", 0)]) == [None, 1]
    assert await store.get("/") == Node(b"x", 1)


# Transactions


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (Create("/a"), NodeExists),
        (Set("/none", b""), NoNode),
        (Set("/a", b"", version=7), VersionConflict),
        (Delete("/none"), NoNode),
        (Delete("/a", version=7), VersionConflict),
        (Delete("/p"), NotEmpty),
        (Check("/none"), NoNode),
        (Check("/a", version=7), VersionConflict),
    ],
    ids=repr,
)
async def test_a_refused_transaction_has_a_reason_and_no_effect(
    store: MetadataStore, operation: Op, error: type[NodeError]
) -> None:
    await store.transaction([Create("/a", b"before"), Create("/p/child")])
    before = await store.tree("/")
    with pytest.raises(error) as refused:
        await store.transaction([Set("/a", b"after"), Create("/new"), operation])
    assert refused.value.path == operation.path
    assert await store.tree("/") == before


async def test_checks_pass_on_what_is_there(store: MetadataStore) -> None:
    await store.transaction([Create("/a")])
    assert await store.transaction([Check("/a"), Check("/a", 0), Check("/a", -1)]) == [None] * 3


async def test_operations_see_those_before_them(store: MetadataStore) -> None:
    results = await store.transaction(
        [
            Create("/a"),
            Set("/a", b"x", version=0),
            Check("/a", version=1),
            Create("/a/b"),
            Delete("/a/b"),
            Delete("/a", version=1),
            Create("/a"),
        ]
    )
    assert results == ["/a", 1, None, "/a/b", None, None, "/a"]


async def test_a_lazy_transaction_is_a_transaction(store: MetadataStore) -> None:
    assert await store.lazy_transaction([Create("/n", b"1"), Set("/n", b"2")]) == ["/n", 1]
    assert await store.get("/n") == Node(b"2", 1)
    with pytest.raises(NoNode):
        await store.lazy_transaction([Set("/n", b"3"), Delete("/none")])
    assert await store.get("/n") == Node(b"2", 1)


async def test_an_empty_transaction_does_nothing(store: MetadataStore) -> None:
    assert await store.transaction([]) == []


async def test_compare_and_set_lets_one_of_many_win(store: MetadataStore) -> None:
    await store.transaction([Create("/n", b"0")])
    outcomes = await asyncio.gather(
        *(store.transaction([Set("/n", b"%d" % i, version=0)]) for i in range(50)),
        return_exceptions=True,
    )
    winners = [i for i, outcome in enumerate(outcomes) if outcome == [1]]
    assert len(winners) == 1
    assert sum(isinstance(outcome, VersionConflict) for outcome in outcomes) == 49
    assert await store.get("/n") == Node(b"%d" % winners[0], 1)


async def test_transactions_at_the_same_time_succeed_or_fail_each_alone(
    store: MetadataStore,
) -> None:
    def plan(i: int) -> Sequence[Op]:
        ops: list[Op] = [Create(f"/n/{i}"), Create(f"/n/{i}/below")]
        return [*ops, Check("/n", version=99)] if i % 3 == 0 else ops

    outcomes = await asyncio.gather(
        *(store.transaction(plan(i)) for i in range(60)), return_exceptions=True
    )
    for i, outcome in enumerate(outcomes):
        assert isinstance(outcome, VersionConflict if i % 3 == 0 else list), i
    tree = await store.tree("/n")
    assert len(tree) == 1 + 2 * 40
    assert not [i for i in range(0, 60, 3) if f"/n/{i}" in tree]


async def test_a_caller_reads_what_it_wrote_without_waiting(store: MetadataStore) -> None:
    write = asyncio.ensure_future(store.transaction([Create("/a", b"mine")]))
    await asyncio.sleep(0)
    assert await store.get("/a") == Node(b"mine", 0)
    await write


async def test_a_cancelled_request_does_not_affect_others(store: MetadataStore) -> None:
    given_up = asyncio.ensure_future(store.transaction([Create("/a")]))
    other = asyncio.ensure_future(store.transaction([Create("/b")]))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await other == ["/b"]
    await store.transaction([Create("/c")])


@pytest.mark.parametrize(
    "path", ["", "a", "a/b", "/a/", "//a", "/a//b", "/.", "/a/..", "/a\0", "/a\n", "/\ud800"]
)
async def test_a_path_that_is_none_is_refused_alone(store: MetadataStore, path: str) -> None:
    good = asyncio.ensure_future(store.transaction([Create("/good")]))
    with pytest.raises(ValueError, match="path"):
        await store.transaction([Create(path)])
    with pytest.raises(ValueError, match="path"):
        await store.get(path)
    assert await good == ["/good"]


async def test_data_that_are_no_bytes_are_refused_alone(store: MetadataStore) -> None:
    good = asyncio.ensure_future(store.transaction([Create("/good")]))
    with pytest.raises(TypeError, match="bytes"):
        await store.transaction([Create("/bad", "text")])  # type: ignore[arg-type]
    assert await good == ["/good"]


# Sequential nodes


async def test_sequence_numbers_rise_and_are_never_given_again(store: MetadataStore) -> None:
    paths = [
        str((await store.transaction([Create("/q/n-", b"", sequential=True)]))[0]) for _ in range(3)
    ]
    assert paths == sorted(set(paths))
    assert all(len(path) == len("/q/n-") + 10 for path in paths)
    await store.transaction([Delete(path) for path in paths])
    (later,) = await store.transaction([Create("/q/n-", sequential=True)])
    assert str(later) > paths[-1]


async def test_one_parent_numbers_all_its_children(store: MetadataStore) -> None:
    first, second = await store.transaction(
        [Create("/q/a-", sequential=True), Create("/q/b-", sequential=True)]
    )
    assert str(first)[-10:] < str(second)[-10:]


async def test_a_failed_transaction_leaves_no_sequential_node(store: MetadataStore) -> None:
    with pytest.raises(NoNode):
        await store.transaction([Create("/q/n-", sequential=True), Check("/none")])
    assert await store.children("/q") == []


# Sessions


async def test_what_was_stored_outlives_the_session(backend: Backend) -> None:
    store = await backend.open()
    await store.transaction([Create("/a", b"x"), Create("/q/n-", sequential=True)])
    await store.transaction([Set("/a", b"y")])
    before = await store.tree("/")
    await store.close()
    store = await backend.open()
    assert await store.tree("/") == before
    (path,) = await store.transaction([Create("/q/n-", sequential=True)])
    assert str(path) > max(path for path in before if path.startswith("/q/"))


async def test_ephemeral_nodes_end_with_the_session(backend: Backend) -> None:
    store = await backend.open()
    await store.transaction(
        [Create("/e", b"x", ephemeral=True), Create("/p/e", ephemeral=True), Create("/p/stays")]
    )
    assert await store.get("/e") == Node(b"x", 0)
    await store.close()
    store = await backend.open()
    assert await store.get("/e") is None
    assert await store.children("/p") == ["stays"]


async def test_ephemeral_nodes_have_no_children(store: MetadataStore) -> None:
    await store.transaction([Create("/e", ephemeral=True)])
    with pytest.raises(NoChildrenForEphemerals):
        await store.transaction([Create("/e/child")])


async def test_the_state_of_the_session_is_told(backend: Backend) -> None:
    store = await backend.open()
    states = [store.state]
    store.on_state(states.append)
    await store.close()
    states.append(store.state)
    assert states == [SessionState.CONNECTED, SessionState.LOST, SessionState.LOST]


async def test_a_closed_store_refuses_everything(backend: Backend) -> None:
    store = await backend.open()
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.get("/a")
    with pytest.raises(StoreUnavailable):
        await store.transaction([Create("/a")])


async def test_closing_finishes_what_was_asked_for(backend: Backend) -> None:
    store = await backend.open()
    asked = [asyncio.ensure_future(store.transaction([Create(f"/n/{i}")])) for i in range(100)]
    await asyncio.sleep(0)
    await store.close()
    assert [len(outcome) for outcome in await asyncio.gather(*asked)] == [1] * 100
    store = await backend.open()
    assert len(await store.children("/n")) == 100


# Watches


async def test_a_watch_tells_of_a_new_and_of_a_deleted_child(store: MetadataStore) -> None:
    for operation in (Create("/p/a"), Delete("/p/a")):
        told: list[int] = []
        await store.children("/p", lambda told=told: told.append(1))  # type: ignore[misc]
        await store.transaction([operation])
        await eventually(lambda told=told: bool(told))  # type: ignore[misc]


async def test_a_watch_misses_nothing_between_reading_and_waiting(store: MetadataStore) -> None:
    told: list[int] = []
    reading = asyncio.ensure_future(store.children("/p", lambda: told.append(1)))
    await asyncio.sleep(0)
    await store.transaction([Create("/p/a")])
    assert await reading == []
    await eventually(lambda: bool(told))


async def test_a_watch_tells_once(store: MetadataStore) -> None:
    told: list[int] = []
    await store.children("/p", lambda: told.append(1))
    for i in range(3):
        await store.transaction([Create(f"/p/{i}")])
    await store.get("/")
    assert told == [1]


async def test_a_failed_transaction_calls_no_watches(store: MetadataStore) -> None:
    await store.transaction([Create("/p/a")])
    told: list[int] = []
    await store.children("/p", lambda: told.append(1))
    with pytest.raises(NoNode):
        await store.transaction([Create("/p/b"), Delete("/p/a"), Check("/none")])
    await store.get("/")
    assert told == []


async def test_a_watch_tells_of_the_first_child_of_what_was_not_there(store: MetadataStore) -> None:
    told: list[int] = []
    assert await store.children("/a/b", lambda: told.append(1)) == []
    await store.transaction([Create("/a/b/c")])
    await eventually(lambda: bool(told))
    assert await store.children("/a/b") == ["c"]


async def test_every_watch_tells(store: MetadataStore) -> None:
    told: list[int] = []
    for number in range(5):
        await store.children("/p", lambda number=number: told.append(number))  # type: ignore[misc]
    await store.transaction([Create("/p/a")])
    await eventually(lambda: sorted(told) == [0, 1, 2, 3, 4])


async def test_a_namesake_has_the_same_versions_and_other_children(store: MetadataStore) -> None:
    """So a version does not show that a node was deleted and created again; a unique child does."""
    await store.transaction([Create("/t", b"1"), Create("/t/id-1")])
    await store.transaction(
        [Delete("/t/id-1"), Delete("/t"), Create("/t", b"2"), Create("/t/id-2")]
    )
    with pytest.raises(NoNode) as refused:
        await store.transaction([Check("/t/id-1"), Set("/t", b"3", 0)])
    assert refused.value.path == "/t/id-1"
    assert await store.get("/t") == Node(b"2", 0)
    assert await store.transaction([Check("/t/id-2"), Set("/t", b"3", 0)]) == [None, 1]


async def test_a_watch_tells_of_the_end_of_the_session(backend: Backend) -> None:
    store = await backend.open()
    told: list[int] = []
    await store.children("/p", lambda: told.append(1))
    await store.close()
    assert told == [1]


async def test_a_watch_tells_when_a_node_is_created_set_and_deleted(store: MetadataStore) -> None:
    for operation in (Create("/p/a", b"1"), Set("/p/a", b"2"), Delete("/p/a")):
        told: list[int] = []
        await store.get("/p/a", lambda told=told: told.append(1))  # type: ignore[misc]
        await store.transaction([operation])
        await eventually(lambda told=told: bool(told))  # type: ignore[misc]


async def test_a_watch_of_a_node_tells_once_and_of_nothing_elsewhere(store: MetadataStore) -> None:
    told: list[int] = []
    await store.transaction([Create("/p/a"), Create("/p/b")])
    await store.get("/p/a", lambda: told.append(1))
    await store.transaction([Set("/p/b", b"1")])
    await store.get("/")
    assert told == []
    for data in (b"1", b"2"):
        await store.transaction([Set("/p/a", data)])
    await store.get("/")
    assert told == [1]


async def test_a_watch_of_a_node_tells_of_the_end_of_the_session(backend: Backend) -> None:
    store = await backend.open()
    told: list[int] = []
    await store.get("/p", lambda: told.append(1))
    await store.close()
    assert told == [1]


# Many operations: they are applied together where that is cheaper

MANY = [f"/many/{number:03}" for number in range(50)]


async def make_many(store: MetadataStore) -> None:
    await store.transaction([Create(f"{path}/below/leaf", b"x") for path in MANY])


async def test_many_creations_make_their_parents_once(store: MetadataStore) -> None:
    created = await store.transaction(
        [Create(f"{path}/{name}", b"x") for path in MANY for name in ("a/b", "a/c", "d")]
    )
    assert created[:3] == ["/many/000/a/b", "/many/000/a/c", "/many/000/d"]
    assert await store.children("/many") == [path.rpartition("/")[2] for path in MANY]
    assert await store.children("/many/049/a") == ["b", "c"]
    assert await store.get("/many/049/a") == Node(b"", 0)
    assert await store.get("/many/049/d") == Node(b"x", 0)


async def test_many_deletions_take_what_is_below_first(store: MetadataStore) -> None:
    before = await store.tree("/")
    await make_many(store)
    paths = [f"{path}{below}" for path in MANY for below in ("/below/leaf", "/below", "")]
    done = await store.transaction([*map(Delete, paths), Delete("/many", version=0)])
    assert done == [None] * (len(paths) + 1)
    assert await store.tree("/") == before


@pytest.mark.parametrize(
    ("bad", "error", "path"),
    [
        (Delete("/many/007/below"), NotEmpty, "/many/007/below"),
        (Delete("/none"), NoNode, "/none"),
        (Delete("/many/007/below/leaf", version=3), VersionConflict, "/many/007/below/leaf"),
        (Create("/many/007"), NodeExists, "/many/007"),
        (Create("/new/000"), NodeExists, "/new/000"),
        (Create("/ephemeral/a/b"), NoChildrenForEphemerals, "/ephemeral"),
        (Set("/many/007", b"", version=7), VersionConflict, "/many/007"),
        (Check("/none"), NoNode, "/none"),
    ],
)
async def test_one_of_many_that_does_not_apply_is_told_and_undoes_all(
    store: MetadataStore, bad: Op, error: type[NodeError], path: str
) -> None:
    await make_many(store)
    await store.transaction([Create("/ephemeral", ephemeral=True)])
    before = await store.tree("/")
    operations: list[Op] = [Create(f"/new/{number:03}") for number in range(20)]
    operations += [Delete(f"/new/{number:03}") for number in range(10, 20)]
    for place in (0, len(operations) // 2, len(operations)):
        if place == 0 and path.startswith("/new"):
            continue
        with pytest.raises(error) as caught:
            await store.transaction([*operations[:place], bad, *operations[place:]])
        assert caught.value.path == path
        assert await store.tree("/") == before


async def test_many_operations_of_all_kinds_keep_their_order(store: MetadataStore) -> None:
    again = [
        op
        for number in range(10)
        for op in (
            Create(f"/again/{number}", b"1"),
            Set(f"/again/{number}", b"2", version=0),
            Delete(f"/again/{number}", version=1),
            Create(f"/again/{number}/below"),
            Delete(f"/again/{number}/below"),
            Create("/numbered/n-", b"x", sequential=True),
            Check(f"/again/{number}", version=0),
        )
    ]
    results = await store.transaction(again)
    assert results[:5] == ["/again/0", 1, None, "/again/0/below", None]
    assert results[5::7] == [f"/numbered/n-{number:010}" for number in range(10)]
    assert await store.children("/again") == [str(number) for number in range(10)]
    assert await store.get("/again/3") == Node(b"", 0)


async def test_watches_hear_of_many(store: MetadataStore) -> None:
    await store.transaction([Create("/many/000")])
    created, deleted = asyncio.Event(), asyncio.Event()
    await store.children("/many", created.set)
    await store.transaction([Create(path) for path in MANY[1:]])
    await asyncio.wait_for(created.wait(), 10)
    await store.get("/many/030", deleted.set)
    await store.transaction([Delete(path) for path in MANY])
    await asyncio.wait_for(deleted.wait(), 10)
