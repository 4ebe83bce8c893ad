"""Decisions share transactions, and each of them still succeeds or fails alone."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from qbus.broker.controller import Growth, NewTopic, TopicPlan
from qbus.broker.controller.decisions import MAX_BYTES
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import (
    AccessDenied,
    Create,
    Delete,
    NoNode,
    Op,
    Result,
    Set,
    StoreError,
    StoreUnavailable,
    TransactionTooLarge,
)
from qbus.metadata.feed import announce
from qbus.metadata.znodes import CONTROLLER_EPOCH, ChangeNode, PartitionStateNode, TopicNode
from tests.support.metadata_plane import MetadataPlane, metadata_plane

MANY = 1000


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path) as plane:
        yield plane


class Recorder:
    """Keeps the transactions of a store; ``meddle`` is called with each before it is applied."""

    def __init__(self, plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
        self.transactions: list[list[Op]] = []
        self.meddle: Callable[[Sequence[Op]], None] = lambda _: None
        self._transaction = plane.store.transaction
        monkeypatch.setattr(plane.store, "transaction", self._record)

    async def _record(self, ops: Sequence[Op]) -> list[Result]:
        self.transactions.append(list(ops))
        self.meddle(ops)
        return await self._transaction(ops)

    async def write(self, *ops: Op) -> None:
        """A write of somebody else, which is not recorded."""
        await self._transaction(ops)

    @property
    def announced(self) -> list[ChangeNode]:
        """What the transactions announced, the refused ones included."""
        changes = (ops[-1] for ops in self.transactions)
        return [ChangeNode.decode(op.data) for op in changes if isinstance(op, Create)]


@pytest.fixture
def store(plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(plane, monkeypatch)


def topics(count: int, partitions: int = 3) -> list[NewTopic]:
    return [NewTopic(f"t-{number:04}", partitions) for number in range(count)]


def codes(outcomes: Sequence[object]) -> list[ErrorCode]:
    return [one.code if isinstance(one, ApiError) else ErrorCode.NONE for one in outcomes]


def size(ops: Sequence[Op]) -> int:
    return sum(len(op.path) + (len(op.data) if isinstance(op, Create | Set) else 0) for op in ops)


async def test_many_topics_of_a_request_are_few_transactions(
    plane: MetadataPlane, store: Recorder
) -> None:
    plans = await plane.controller.create_topics(topics(MANY))
    assert all(isinstance(plan, TopicPlan) for plan in plans)
    assert len(plane.metadata.topics) == MANY
    assert 1 < len(store.transactions) <= 10
    assert all(size(ops) < MAX_BYTES for ops in store.transactions)
    named = [name for change in store.announced for name in change.topics]
    assert named == [topic.name for topic in topics(MANY)]


async def test_growing_and_deleting_many_are_few_transactions_too(
    plane: MetadataPlane, store: Recorder
) -> None:
    names = [topic.name for topic in topics(MANY)]
    before = await plane.store.tree("/brokers/topics")
    await plane.controller.create_topics(topics(MANY))
    store.transactions.clear()
    grown = await plane.controller.create_partitions([Growth(name, 5) for name in names])
    assert grown == [None] * MANY
    assert {len(topic.partitions) for topic in plane.metadata.topics.values()} == {5}
    assert len(store.transactions) <= 10
    store.transactions.clear()
    assert set(codes(await plane.controller.delete_topics(names))) == {ErrorCode.NONE}
    assert len(store.transactions) <= 10
    assert not plane.metadata.topics
    assert (await plane.store.tree("/brokers/topics")).keys() <= before.keys() | {"/brokers/topics"}


async def test_requests_that_come_while_others_are_written_share_the_next_transaction(
    plane: MetadataPlane, store: Recorder
) -> None:
    requests = [plane.controller.create_topics([topic]) for topic in topics(100)]
    outcomes = await asyncio.gather(*requests)
    assert {code for some in outcomes for code in codes(some)} == {ErrorCode.NONE}
    assert len(store.transactions) <= 3


async def test_each_request_is_answered_when_the_cache_has_what_it_asked_for(
    plane: MetadataPlane,
) -> None:
    async def ask(topic: NewTopic) -> bool:
        await plane.controller.create_topics([topic])
        return topic.name in plane.metadata.topics

    assert all(await asyncio.gather(*map(ask, topics(50))))


async def test_one_that_another_broker_created_first_hurts_no_other(
    plane: MetadataPlane, store: Recorder
) -> None:
    """This broker has not heard of it, so the transaction of all is refused for it."""
    theirs = TopicNode(bytes(16), {0: (1,)})
    await store.write(
        Create(TopicNode.path("t-0005"), theirs.encode()),
        Create(PartitionStateNode.path("t-0005", 0), PartitionStateNode(1, 0, (1,), 1).encode()),
        announce(ChangeNode(topics=("t-0005",)).encode()),
    )
    outcomes = await plane.controller.create_topics(topics(20))
    expected = [ErrorCode.NONE] * 20
    expected[5] = ErrorCode.TOPIC_ALREADY_EXISTS
    assert codes(outcomes) == expected
    assert plane.metadata.topics["t-0005"].id == bytes(16)
    assert len(plane.metadata.topics) == 20


async def test_nodes_of_others_below_one_topic_hurt_no_other_deletion(
    plane: MetadataPlane, store: Recorder
) -> None:
    await plane.controller.create_topics(topics(20))
    await store.write(Create("/brokers/topics/t-0007/notes/of/an/operator"))
    names = [topic.name for topic in topics(20)]
    assert set(codes(await plane.controller.delete_topics(names))) == {ErrorCode.NONE}
    assert (await plane.store.tree("/brokers/topics")).keys() <= {"/brokers/topics"}


async def test_a_topic_that_is_gone_already_hurts_no_other_deletion(
    plane: MetadataPlane, store: Recorder
) -> None:
    await plane.controller.create_topics(topics(3, partitions=1))
    gone = plane.metadata.topics["t-0001"]
    tree = sorted(await plane.store.tree(TopicNode.path(gone.name)), key=len, reverse=True)
    await store.write(
        *(Delete(path) for path in tree), announce(ChangeNode(topics=(gone.name,)).encode())
    )
    outcomes = await plane.controller.delete_topics(["t-0000", "t-0001", "t-0002"])
    none, unknown = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(outcomes) == [none, unknown, none]


async def test_under_another_controller_all_are_decided_again(
    plane: MetadataPlane, store: Recorder
) -> None:
    await store.write(Set(CONTROLLER_EPOCH, b"7"), announce(ChangeNode(cluster=True).encode()))
    assert set(codes(await plane.controller.create_topics(topics(50)))) == {ErrorCode.NONE}
    nodes = await plane.store.get_many(
        [PartitionStateNode.path(topic.name, 0) for topic in topics(50)]
    )
    assert len(nodes) == 50
    epochs = {PartitionStateNode.decode(node.data).controller_epoch for node in nodes.values()}
    assert epochs == {7}


async def test_names_that_collide_never_share_a_turn(plane: MetadataPlane) -> None:
    """Nothing in the store would keep them apart."""
    outcomes = await asyncio.gather(
        *(plane.controller.create_topics([NewTopic(name)]) for name in ("a.b", "a_b"))
    )
    none, refused = ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [code for some in outcomes for code in codes(some)] == [none, refused]
    assert plane.metadata.topics.keys() == {"a.b"}


async def test_what_is_asked_about_one_topic_is_done_in_turn(plane: MetadataPlane) -> None:
    created, grown, deleted, again = await asyncio.gather(
        plane.controller.create_topics([NewTopic("t", 1)]),
        plane.controller.create_partitions([Growth("t", 2)]),
        plane.controller.delete_topics(["t"]),
        plane.controller.create_topics([NewTopic("t", 4)]),
    )
    assert codes([*created, *grown, *deleted, *again]) == [ErrorCode.NONE] * 4
    assert len(plane.metadata.topics["t"].partitions) == 4


@pytest.mark.parametrize(("conflicts", "most"), [(1, 2), (5, 6), (100, 200)])
async def test_conflicts_cost_few_more_transactions(
    plane: MetadataPlane, store: Recorder, conflicts: int, most: int
) -> None:
    """Nodes of others below some topics: these are decided again, the rest is written at once."""
    names = [topic.name for topic in topics(MANY)]
    await plane.controller.create_topics(topics(MANY))
    for name in names[:: MANY // conflicts]:
        await store.write(Create(f"{TopicNode.path(name)}/notes"))
    batches = len(store.transactions)
    store.transactions.clear()
    assert set(codes(await plane.controller.delete_topics(names))) == {ErrorCode.NONE}
    assert not plane.metadata.topics
    assert len(store.transactions) <= batches + most


async def test_a_conflict_about_nobodys_node_is_found_by_halves(
    plane: MetadataPlane, store: Recorder
) -> None:
    """The store may name a node that no decision names: a parent."""
    found = False

    def refuse(ops: Sequence[Op]) -> None:
        nonlocal found
        created = {op.path for op in ops if isinstance(op, Create)}
        if TopicNode.path("t-0033") in created and not found:
            found = not created & {TopicNode.path(f"t-{number:04}") for number in (32, 34)}
            raise NoNode("/brokers/topics")

    store.meddle = refuse
    assert set(codes(await plane.controller.create_topics(topics(100)))) == {ErrorCode.NONE}
    assert len(store.transactions) <= 16


async def test_a_batch_that_the_store_finds_too_large_is_written_in_halves(
    plane: MetadataPlane, store: Recorder
) -> None:
    def refuse(ops: Sequence[Op]) -> None:
        if len(ops) > 100:
            raise TransactionTooLarge("no more than 100 operations")

    store.meddle = refuse
    wanted = [*topics(30), NewTopic("huge", 200)]
    expected = [*[ErrorCode.NONE] * 30, ErrorCode.POLICY_VIOLATION]
    assert codes(await plane.controller.create_topics(wanted)) == expected
    assert "huge" not in plane.metadata.topics
    assert len(store.transactions) <= 12


@pytest.mark.parametrize("error", [AccessDenied("/brokers/topics/t-0020"), StoreError("refused")])
async def test_one_that_the_store_refuses_hurts_no_other(
    plane: MetadataPlane, store: Recorder, error: StoreError
) -> None:
    """Nothing was written of it, and that is what its answer says."""

    def refuse(ops: Sequence[Op]) -> None:
        if any(op.path == TopicNode.path("t-0020") for op in ops):
            raise error

    store.meddle = refuse
    expected = [ErrorCode.NONE] * 100
    expected[20] = ErrorCode.UNKNOWN_SERVER_ERROR
    assert codes(await plane.controller.create_topics(topics(100))) == expected
    assert len(plane.metadata.topics) == 99
    assert len(store.transactions) <= 16


async def test_what_cannot_be_planned_for_want_of_access_is_refused_for_good(
    plane: MetadataPlane, store: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.controller.create_topics(topics(2))
    await store.write(Create(f"{TopicNode.path('t-0001')}/notes"))

    async def deny(path: str) -> None:
        raise AccessDenied(path)

    monkeypatch.setattr(plane.store, "tree", deny)
    expected = [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR]
    assert codes(await plane.controller.delete_topics(["t-0000", "t-0001"])) == expected


async def test_a_lost_answer_leaves_whole_topics_or_none(
    plane: MetadataPlane, store: Recorder
) -> None:
    """The second transaction gets no answer: what is in it is unknown, the others are there."""

    def lose(_: Sequence[Op]) -> None:
        if len(store.transactions) == 2:
            raise StoreUnavailable("the answer is lost")

    store.meddle = lose
    outcomes = codes(await plane.controller.create_topics(topics(MANY)))
    unknown = outcomes.count(ErrorCode.REQUEST_TIMED_OUT)
    assert 0 < unknown < MANY
    assert outcomes.count(ErrorCode.NONE) == MANY - unknown == len(plane.metadata.topics)
    nodes = await plane.store.tree("/brokers/topics")
    for topic, code in zip(topics(MANY), outcomes, strict=True):
        states = sum(PartitionStateNode.path(topic.name, i) in nodes for i in range(3))
        assert states == (0 if code else 3)
        assert (TopicNode.path(topic.name) in nodes) is not bool(code)


async def test_who_gives_up_waiting_stops_nobody(plane: MetadataPlane) -> None:
    impatient = asyncio.create_task(plane.controller.create_topics(topics(10)))
    patient = asyncio.create_task(plane.controller.create_topics([NewTopic("mine")]))
    await asyncio.sleep(0)
    impatient.cancel()
    assert codes(await patient) == [ErrorCode.NONE]
    assert "mine" in plane.metadata.topics


async def test_a_defect_in_a_plan_is_told_and_the_next_request_is_served(
    plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:

        def fail(*_: object) -> None:
            raise RuntimeError("a defect")

        broken.setattr(plane.controller._planner, "create", fail)
        with pytest.raises(RuntimeError, match="a defect"):
            await plane.controller.create_topics(topics(3))
    assert codes(await plane.controller.create_topics(topics(3))) == [ErrorCode.NONE] * 3


async def test_a_defect_in_one_plan_hurts_no_other_request(
    plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = plane.controller._planner.create

    def fail(topic: NewTopic, epoch: int) -> TopicPlan:
        if topic.name == "bad":
            raise RuntimeError("a defect")
        return create(topic, epoch)

    monkeypatch.setattr(plane.controller._planner, "create", fail)
    many, bad = await asyncio.gather(
        plane.controller.create_topics(topics(MANY)),
        plane.controller.create_topics([NewTopic("bad")]),
        return_exceptions=True,
    )
    assert isinstance(bad, RuntimeError)
    assert isinstance(many, list)
    assert codes(many) == [ErrorCode.NONE] * MANY
    assert len(plane.metadata.topics) == MANY


async def test_a_defect_in_one_transaction_hurts_no_other(
    plane: MetadataPlane, store: Recorder
) -> None:
    def fail(_: Sequence[Op]) -> None:
        if len(store.transactions) == 2:
            raise RuntimeError("a defect")

    store.meddle = fail
    requests = (plane.controller.create_topics([topic]) for topic in topics(MANY))
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    failed = [outcome for outcome in outcomes if isinstance(outcome, RuntimeError)]
    assert 0 < len(failed) < MANY
    assert len(plane.metadata.topics) == MANY - len(failed)
