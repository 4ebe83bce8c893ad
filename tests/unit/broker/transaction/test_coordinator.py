"""The coordinator: decisions are stored before they are told, and told until everybody knows."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from qbus.broker.transaction import Marker, Participants, Question, State
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.names import TRANSACTIONS_TOPIC
from tests.support.waiting import eventually

from .coordinators import FAR, NEAR, TX, World

T0, T1, T2, T3 = (("t", index) for index in range(4))


async def code(operation: object) -> ErrorCode:
    """What something is refused with."""
    try:
        await operation  # type: ignore[misc]
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


class TestAnEnd:
    async def test_is_told_to_the_leaders_of_all_partitions(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0, T1, T2])
        following = await world.transactions.end(TX, producer, commit=True, client_version=2)
        assert following == (100, 1)
        await world.over()
        assert sorted(world.brokers.told()) == [
            (NEAR, T0, 1, True),
            (NEAR, T1, 1, True),
            (FAR, T2, 1, True),
        ]
        assert world.brokers.requests == 2
        assert {marker.transaction_version for _, marker in world.brokers.markers} == {2}
        assert world.transactions.counts.committed == 1

    async def test_of_an_older_client_is_told_in_its_epoch(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        await world.transactions.end(TX, producer, commit=False, client_version=1)
        await world.over()
        assert world.brokers.told() == [(NEAR, T0, 0, False)]
        assert world.state() is State.COMPLETE_ABORT

    async def test_is_not_told_before_it_is_stored(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        world.plane.disk.hold_syncs()
        ending = asyncio.ensure_future(
            world.transactions.end(TX, producer, commit=True, client_version=2)
        )
        await eventually(lambda: world.state() is State.PREPARE_COMMIT)
        await asyncio.sleep(0.05)
        assert world.brokers.requests == 0
        assert not ending.done()
        world.plane.disk.release_syncs()
        await ending
        await world.over()

    async def test_is_told_though_its_client_is_gone(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        ending = asyncio.ensure_future(
            world.transactions.end(TX, producer, commit=True, client_version=2)
        )
        await asyncio.sleep(0)
        ending.cancel()
        await world.over()

    async def test_is_answered_before_the_markers_are_written(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        world.brokers.held.clear()
        await world.transactions.end(TX, producer, commit=True, client_version=2)
        assert world.state() is State.PREPARE_COMMIT
        described = await world.transactions.describe(TX)
        assert described.partitions == {T0}
        world.brokers.held.set()
        await world.over()

    async def test_of_many_at_a_time_takes_few_requests(self, world: World) -> None:
        names = [f"tx-{number}" for number in range(40)]
        producers = {name: await world.producer(name) for name in names}
        for name in names:
            await world.transactions.add(name, producers[name], [T0, T2])
        await asyncio.gather(
            *(
                world.transactions.end(name, producers[name], commit=True, client_version=2)
                for name in names
            )
        )
        for name in names:
            await world.over(name)
        assert len(world.brokers.told()) == 80
        assert world.brokers.requests <= 8

    async def test_is_told_to_groups_as_well(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0], ["readers"])
        world.brokers.refusals["readers"] = [ErrorCode.NOT_COORDINATOR] * 2
        await world.transactions.end(TX, producer, commit=True, client_version=2)
        await world.over()
        assert world.brokers.groups == [("readers", 100, 0, True)]
        assert world.transactions.markers.retries == 2

    async def test_names_groups_the_epoch_that_the_transaction_had(self, world: World) -> None:
        """Its producer has another one by now, whose offsets are of the next transaction."""
        producer = await world.producer()
        for version, commit in [(1, True), (2, True), (2, False)]:
            await world.transactions.add(TX, producer, groups=["g"])
            following = await world.transactions.end(
                TX, producer, commit=commit, client_version=version
            )
            await world.over()
            assert world.brokers.groups.pop() == ("g", *producer, commit)
            producer = following

    async def test_of_a_transaction_without_partitions_needs_no_markers(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.end(TX, producer, commit=False, client_version=2)
        assert world.state() is State.COMPLETE_ABORT
        assert world.brokers.requests == 0


class TestWhoCannotBeTold:
    @pytest.mark.parametrize(
        "refusal",
        [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ],
    )
    async def test_is_told_again(self, world: World, refusal: ErrorCode) -> None:
        producer = await world.producer()
        world.brokers.refusals[T0] = [refusal] * 2
        await world.transactions.add(TX, producer, [T0, T2])
        await world.transactions.end(TX, producer, commit=True, client_version=2)
        await world.over()
        told = world.brokers.told()
        assert told.count((NEAR, T0, 1, True)) == 3
        assert told.count((FAR, T2, 1, True)) == 1

    async def test_is_looked_for_where_it_is_led_now(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T2])
        world.brokers.unreachable.add(FAR)
        await world.transactions.end(TX, producer, commit=True, client_version=2)
        await eventually(lambda: world.transactions.markers.retries > 0)
        await world.move(T2, NEAR)
        await world.over()
        assert world.brokers.told() == [(NEAR, T2, 1, True)]

    async def test_and_has_no_leader_is_waited_for(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T2])
        await world.move(T2, -1)
        await world.transactions.end(TX, producer, commit=True, client_version=2)
        await eventually(lambda: world.transactions.markers.retries > 1)
        assert world.state() is State.PREPARE_COMMIT
        await world.move(T2, FAR)
        await world.over()

    async def test_and_was_deleted_is_passed_over(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        await world.plane.metadata.remove("t")
        await world.transactions.end(TX, producer, commit=True, client_version=2)
        await world.over()

    async def test_and_is_heard_of_late_is_told_all_the_same(self, world: World) -> None:
        """As by a broker that comes to coordinate just after a topic was made."""
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0, T2])
        topic = world.plane.metadata.topics.pop("t")
        await world.transactions.end(TX, producer, commit=True, client_version=2)
        await eventually(lambda: world.transactions.markers.retries > 0)
        assert world.state() is State.PREPARE_COMMIT
        world.plane.metadata.topics["t"] = topic
        await world.over()
        assert sorted(world.brokers.told()) == [(NEAR, T0, 1, True), (FAR, T2, 1, True)]

    @pytest.mark.parametrize("place", [("unknown", 0), ("t", 4), ("t", -1)])
    async def test_and_is_not_known_here_yet_is_not_added(
        self, world: World, place: tuple[str, int]
    ) -> None:
        producer = await world.producer()
        refused = await code(world.transactions.add(TX, producer, [T0, place]))
        assert refused is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        question = Question(TX, producer, Participants(frozenset({place})))
        answers = await world.transactions.answer(question, add=True)
        assert answers == {place: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert world.state() is State.EMPTY

    async def test_and_knows_a_later_transaction_has_been_told(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        world.brokers.refusals[T0] = [ErrorCode.INVALID_PRODUCER_EPOCH]
        await world.transactions.end(TX, producer, commit=True, client_version=2)
        await world.over()

    async def test_and_is_a_mirror_needs_no_marker(self, world: World) -> None:
        producer = await world.producer()
        world.brokers.refusals[T0] = [ErrorCode.POLICY_VIOLATION] * 1000
        await world.transactions.add(TX, producer, [T0, T2])
        await world.transactions.end(TX, producer, commit=False, client_version=2)
        await world.over()

    async def test_is_told_again_after_an_error_that_nobody_knows(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0], ["g"])
        errors = [ValueError("unheard of"), ValueError("unheard of")]
        write, end_group = world.brokers.write, world.brokers.end_group

        async def failing_write(*args: Any) -> Any:
            if errors:
                raise errors.pop()
            return await write(*args)

        async def failing_end_group(*args: Any, **options: Any) -> None:
            if errors:
                raise errors.pop()
            await end_group(*args, **options)

        monkeypatch.setattr(world.brokers, "write", failing_write)
        monkeypatch.setattr(world.brokers, "end_group", failing_end_group)
        await world.transactions.end(TX, producer, commit=True, client_version=2)
        await world.over()
        assert world.brokers.told() == [(NEAR, T0, 1, True)]
        assert world.brokers.groups == [("g", 100, 0, True)]

    async def test_and_knows_a_later_coordinator_is_left_to_that(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        world.brokers.refusals[T0] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        await world.transactions.end(TX, producer, commit=True, client_version=2)
        await eventually(lambda: len(world.transactions.markers) == 0)
        assert world.state() is State.PREPARE_COMMIT

    async def test_hinders_no_other_transaction(self, world: World) -> None:
        stuck, free = await world.producer("stuck"), await world.producer("free")
        await world.transactions.add("stuck", stuck, [T2])
        await world.transactions.add("free", free, [T3])
        await world.move(T2, -1)
        await world.transactions.end("stuck", stuck, commit=True, client_version=2)
        await world.transactions.end("free", free, commit=True, client_version=2)
        await world.over("free")
        assert world.state("stuck") is State.PREPARE_COMMIT

    async def test_and_does_not_acknowledge_hinders_no_other_transaction(
        self, world: World
    ) -> None:
        """Markers of this broker's own partitions wait for nothing but those partitions."""
        waiting: list[tuple[Sequence[Marker], Any]] = []

        def write_own(broker: int, markers: Sequence[Marker], told: Any) -> bool:
            waiting.append((markers, told))
            return broker == NEAR

        world.brokers.write_own = write_own  # type: ignore[method-assign]
        names = [f"tx{number}" for number in range(4)]
        for number, name in enumerate(names, 1):
            producer = await world.producer(name)
            await world.transactions.add(name, producer, [T0])
            await world.transactions.end(name, producer, commit=True, client_version=2)
            await eventually(lambda number=number: len(waiting) == number)  # type: ignore[misc]
        for markers, told in reversed(waiting):
            told({(one.producer_id, T0): ErrorCode.NONE for one in markers})
        for name in names:
            await world.over(name)

    async def test_for_long_is_said_with_the_reason(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        world.brokers.refusals[T0] = [ErrorCode.NOT_ENOUGH_REPLICAS] * 5
        await world.transactions.end(TX, producer, commit=True, client_version=2)
        await world.over()
        (line,) = [line for line in caplog.messages if "cannot be told" in line]
        assert "'payments'" in line
        assert "t-0" in line
        assert "NOT_ENOUGH_REPLICAS" in line


class TestTheNextTransaction:
    async def test_waits_for_the_markers_of_the_one_before(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        world.brokers.held.clear()
        following = await world.transactions.end(TX, producer, commit=True, client_version=2)
        adding = asyncio.ensure_future(world.transactions.add(TX, following, [T1]))
        beginning = asyncio.ensure_future(world.transactions.initialize(TX, 1000, following))
        await asyncio.sleep(0.05)
        assert not adding.done()
        assert not beginning.done()
        beginning.cancel()
        world.brokers.held.set()
        await adding
        assert world.state() is State.ONGOING

    async def test_is_refused_for_now_when_that_takes_long(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("qbus.broker.transaction.coordinator._PATIENCE_S", 0.02)
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        world.brokers.held.clear()
        following = await world.transactions.end(TX, producer, commit=True, client_version=2)
        refused = await code(world.transactions.add(TX, following, [T0]))
        assert refused is ErrorCode.CONCURRENT_TRANSACTIONS
        world.brokers.held.set()
        await world.over()
        await world.transactions.add(TX, following, [T0])

    async def test_an_end_that_is_sent_twice_has_one_answer(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        ends = [
            world.transactions.end(TX, producer, commit=True, client_version=2) for _ in range(3)
        ]
        assert await asyncio.gather(*ends) == [(100, 1)] * 3
        assert world.transactions.counts.committed == 1


class TestTakingOver:
    async def test_a_producer_that_begins_aborts_the_transaction_of_the_one_before(
        self, world: World
    ) -> None:
        first = await world.producer()
        await world.transactions.add(TX, first, [T0])
        second = await world.transactions.initialize(TX, 60_000)
        assert second == (100, 2)
        assert world.brokers.told() == [(NEAR, T0, 1, False)]
        assert await code(world.transactions.add(TX, first, [T0])) is ErrorCode.PRODUCER_FENCED
        assert world.transactions.counts.fenced == 1
        await world.transactions.add(TX, second, [T0])

    async def test_it_asks_again_when_that_takes_long(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("qbus.broker.transaction.coordinator._FENCE_PATIENCE_S", 0.02)
        monkeypatch.setattr("qbus.broker.transaction.coordinator._PATIENCE_S", 0.02)
        first = await world.producer()
        await world.transactions.add(TX, first, [T0])
        world.brokers.held.clear()
        for _ in range(2):
            refused = await code(world.transactions.initialize(TX, 60_000))
            assert refused is ErrorCode.CONCURRENT_TRANSACTIONS
        world.brokers.held.set()
        await world.over()
        assert await world.transactions.initialize(TX, 60_000) == (100, 2)

    async def test_a_transaction_that_is_open_for_too_long_is_aborted(self, world: World) -> None:
        producer = await world.producer(timeout_ms=5_000)
        await world.transactions.add(TX, producer, [T0, T2])
        world.plane.clock.advance(4)
        world.transactions.log.tick()
        await asyncio.sleep(0.02)
        assert world.state() is State.ONGOING
        world.plane.clock.advance(1)
        world.transactions.log.tick()
        await world.over()
        assert sorted(world.brokers.told()) == [(NEAR, T0, 1, False), (FAR, T2, 1, False)]
        assert world.transactions.counts.timed_out == 1


class TestALogThatTakesNoRecords:
    async def test_for_a_while_says_later_that_a_transaction_is_over(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        world.brokers.held.clear()
        following = await world.transactions.end(TX, producer, commit=True, client_version=2)
        followers = next(world.transactions.log.shards()).partition.followers
        assert followers is not None
        enough = followers.wanted
        followers.wanted = enough._replace(min_isr=2)
        world.brokers.held.set()
        await eventually(lambda: bool(world.brokers.told()))
        await asyncio.sleep(0.05)
        assert world.state() is State.PREPARE_COMMIT
        followers.wanted = enough
        await world.over()
        await world.transactions.add(TX, following, [T0])


class TestAnotherCoordinator:
    @pytest.mark.parametrize("commit", [True, False])
    async def test_goes_on_with_what_was_decided(self, world: World, commit: bool) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0, T2])
        world.brokers.held.clear()
        following = await world.transactions.end(TX, producer, commit=commit, client_version=2)
        await world.restart()
        world.brokers.held.set()
        await world.over()
        assert sorted(world.brokers.told()) == [(NEAR, T0, 1, commit), (FAR, T2, 1, commit)]
        again = await world.transactions.end(TX, producer, commit=commit, client_version=2)
        assert again == following

    async def test_knows_of_open_transactions_and_their_time(self, world: World) -> None:
        producer = await world.producer(timeout_ms=5_000)
        await world.transactions.add(TX, producer, [T0])
        await world.restart()
        assert world.state() is State.ONGOING
        world.plane.clock.advance(5)
        world.transactions.log.tick()
        await world.over()
        assert world.brokers.told() == [(NEAR, T0, 1, False)]

    async def test_is_told_nothing_twice_of_what_is_over(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        await world.transactions.end(TX, producer, commit=True, client_version=2)
        await world.over()
        world.brokers.markers.clear()
        await world.restart()
        await asyncio.sleep(0.05)
        assert world.brokers.markers == []

    async def test_a_former_one_tells_nobody_and_refuses(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        world.brokers.refusals[T0] = [ErrorCode.NOT_ENOUGH_REPLICAS] * 1000
        await world.transactions.end(TX, producer, commit=True, client_version=2)
        await world.lead_elsewhere()
        assert len(world.transactions.markers) == 0
        requests = world.brokers.requests
        refused = await code(world.transactions.add(TX, producer, [T0]))
        assert refused is ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(0.1)
        assert world.brokers.requests <= requests + 1
        leader = await world.transactions.coordinator(TX)
        assert leader is not None
        assert leader.id == FAR

    async def test_a_request_that_it_could_not_finish_is_refused_and_not_lost(
        self, world: World
    ) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        world.plane.disk.hold_syncs()
        ending = asyncio.ensure_future(
            code(world.transactions.end(TX, producer, commit=True, client_version=2))
        )
        await eventually(lambda: world.state() is State.PREPARE_COMMIT)
        await world.lead_elsewhere()
        assert await ending is ErrorCode.NOT_COORDINATOR
        world.plane.disk.release_syncs()


class TestRefusals:
    @pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
    async def test_time_outs_have_bounds(self, world: World, timeout_ms: int) -> None:
        await world.producer()
        refused = await code(world.transactions.initialize(TX, timeout_ms))
        assert refused is ErrorCode.INVALID_TRANSACTION_TIMEOUT

    async def test_a_transactional_id_is_not_empty(self, world: World) -> None:
        for operation in (
            world.transactions.coordinator(""),
            world.transactions.initialize("", 1000),
            world.transactions.add("", (1, 0), [T0]),
            world.transactions.end("", (1, 0), commit=True, client_version=2),
            world.transactions.describe(""),
        ):
            assert await code(operation) is ErrorCode.INVALID_REQUEST

    async def test_without_the_store_there_are_no_new_producer_ids(self, world: World) -> None:
        await world.producer()
        world.ids.is_gone = True
        refused = await code(world.transactions.initialize("other", 1000))
        assert refused is ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.ids.is_gone = False
        assert await world.transactions.initialize("other", 1000) == (101, 0)

    async def test_an_id_that_nobody_used_is_not_found(self, world: World) -> None:
        await world.producer()
        refused = await code(world.transactions.describe("nobody"))
        assert refused is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class TestQuestionsOfLeaders:
    """KIP-890: whether a partition is a part of a transaction."""

    async def test_are_answered_for_each_partition(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.add(TX, producer, [T0])
        question = Question(TX, producer, Participants(frozenset({T0, T1}), frozenset({"g"})))
        assert await world.transactions.answer(question, add=False) == {
            T0: ErrorCode.NONE,
            T1: ErrorCode.TRANSACTION_ABORTABLE,
            "g": ErrorCode.TRANSACTION_ABORTABLE,
        }

    async def test_may_add_what_they_are_about(self, world: World) -> None:
        producer = await world.producer()
        question = Question(TX, producer, Participants(frozenset({T0}), frozenset({"g"})))
        assert await world.transactions.answer(question, add=True) == {
            T0: ErrorCode.NONE,
            "g": ErrorCode.NONE,
        }
        assert world.state() is State.ONGOING

    async def test_of_a_fenced_producer_are_refused(self, world: World) -> None:
        producer = await world.producer()
        await world.transactions.initialize(TX, 1000)
        question = Question(TX, producer, Participants(frozenset({T0})))
        for add in (True, False):
            answers = await world.transactions.answer(question, add=add)
            assert answers == {T0: ErrorCode.PRODUCER_FENCED}

    @pytest.mark.parametrize(
        ("answer", "add", "abortable", "told"),
        [
            (ErrorCode.NONE, False, True, ErrorCode.NONE),
            (ErrorCode.NOT_COORDINATOR, False, True, ErrorCode.NOT_ENOUGH_REPLICAS),
            (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True, True, ErrorCode.NOT_ENOUGH_REPLICAS),
            (ErrorCode.COORDINATOR_NOT_AVAILABLE, True, True, ErrorCode.NOT_ENOUGH_REPLICAS),
            (ErrorCode.CONCURRENT_TRANSACTIONS, False, True, ErrorCode.NOT_ENOUGH_REPLICAS),
            (ErrorCode.CONCURRENT_TRANSACTIONS, True, True, ErrorCode.CONCURRENT_TRANSACTIONS),
            (ErrorCode.PRODUCER_FENCED, True, True, ErrorCode.INVALID_PRODUCER_EPOCH),
            (ErrorCode.TRANSACTION_ABORTABLE, False, True, ErrorCode.TRANSACTION_ABORTABLE),
            (ErrorCode.TRANSACTION_ABORTABLE, False, False, ErrorCode.INVALID_TXN_STATE),
        ],
    )
    async def test_are_answered_to_producers_as_kafka_does(
        self, world: World, answer: ErrorCode, add: bool, abortable: bool, told: ErrorCode
    ) -> None:
        world.brokers.answers = {T0: answer}
        answers = await world.transactions.verify(TX, 7, 3, [T0], add=add, abortable=abortable)
        assert answers == {T0: told}
        assert world.brokers.asked == [(Question(TX, (7, 3), Participants(frozenset({T0}))), add)]

    async def test_that_reach_nobody_are_asked_again_by_the_producer(self, world: World) -> None:
        world.brokers.answers = QbusError("broker 2 is not reached")
        answers = await world.transactions.verify(TX, 7, 3, [T0, T1], add=True)
        assert answers == dict.fromkeys([T0, T1], ErrorCode.NOT_ENOUGH_REPLICAS)
        group = await world.transactions.verify_group(TX, 7, 3, "g", add=True)
        assert group is ErrorCode.NOT_ENOUGH_REPLICAS

    async def test_about_groups_are_answered_in_the_same_way(self, world: World) -> None:
        world.brokers.answers = {"g": ErrorCode.PRODUCER_FENCED}
        told = await world.transactions.verify_group(TX, 7, 3, "g", add=True)
        assert told is ErrorCode.INVALID_PRODUCER_EPOCH
        world.brokers.asked.clear()
        world.brokers.answers = {"g": ErrorCode.TRANSACTION_ABORTABLE}
        told = await world.transactions.verify_group(TX, 7, 3, "g", add=False)
        assert told is ErrorCode.TRANSACTION_ABORTABLE
        question = Question(TX, (7, 3), Participants(groups=frozenset({"g"})))
        assert world.brokers.asked == [(question, False)]


async def test_the_log_is_not_listed_while_it_is_loaded(world: World) -> None:
    await world.producer()
    assert [one.transactional_id for one in world.transactions.listed()] == [TX]
    world.transactions.log._load_again(next(world.transactions.log.shards()))
    with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        world.transactions.listed()


async def test_the_states_are_counted(world: World) -> None:
    producer = await world.producer()
    await world.producer("other")
    await world.transactions.add(TX, producer, [T0])
    counts = {state: n for state, n in world.transactions.count_by_state().items() if n}
    assert counts == {State.ONGOING: 1, State.EMPTY: 1}


async def test_the_topic_is_made_as_kafkas_is(world: World) -> None:
    await world.producer()
    topic = world.plane.metadata.topics[TRANSACTIONS_TOPIC]
    assert topic.config == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
