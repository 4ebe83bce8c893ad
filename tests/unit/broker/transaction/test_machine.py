"""What the transaction coordinator decides: one transactional id through its transactions."""

from collections.abc import Callable
from typing import Any

import pytest

from qbus.broker.transaction import Participants, State
from qbus.broker.transaction.machine import Reason
from qbus.broker.transaction.state import MAX_EPOCH
from qbus.errors import ErrorCode

from .shell import EXPIRATION_MS, T0, T1, T2, TIMEOUT_MS, TX, Shell, code


@pytest.fixture
def shell() -> Shell:
    return Shell()


def at_epoch(shell: Shell, epoch: int) -> tuple[int, int]:
    """A producer whose epoch is ``epoch``, as after that many beginnings."""
    shell.init()
    known = shell.machine.transactions[TX]
    shell.machine.transactions[TX] = known._replace(epoch=epoch)
    return known.producer_id, epoch


class TestBeginning:
    def test_a_new_transactional_id_gets_a_new_producer_id_in_epoch_0(self, shell: Shell) -> None:
        assert shell.init() == (100, 0)
        assert shell.state() is State.EMPTY

    def test_the_next_one_to_begin_gets_the_next_epoch(self, shell: Shell) -> None:
        first = shell.init()
        assert shell.init() == (100, 1)
        assert code(lambda: shell.add(first, T0)) is ErrorCode.PRODUCER_FENCED

    def test_different_transactional_ids_never_fence_each_other(self, shell: Shell) -> None:
        producers = {name: shell.init(name=name) for name in "abc"}
        for _ in range(3):
            for name in "abc":
                shell.add(producers[name], T0, name=name)
            for name in "abc":
                producers[name] = shell.end(producers[name], name=name)
                shell.told(name)
        assert len({producer_id for producer_id, _ in producers.values()}) == 3

    def test_the_time_out_is_that_of_the_last_one_to_begin(self, shell: Shell) -> None:
        shell.init(timeout_ms=5)
        shell.init(timeout_ms=7)
        assert shell.machine.transactions[TX].timeout_ms == 7

    def test_an_open_transaction_is_aborted_first(self, shell: Shell) -> None:
        first = shell.init()
        shell.add(first, T0)
        assert shell.init() == (-1, -1)
        assert shell.state() is State.PREPARE_ABORT
        ((ending, reason),) = shell.decided
        assert reason is Reason.FENCED
        assert ending.partitions == {T0}
        assert (ending.producer_id, ending.epoch) == (100, 1)
        assert code(shell.init) is ErrorCode.CONCURRENT_TRANSACTIONS
        shell.told()
        assert shell.init() == (100, 2)
        assert code(lambda: shell.add(first, T0)) is ErrorCode.PRODUCER_FENCED
        assert code(lambda: shell.end(first, commit=True)) is ErrorCode.PRODUCER_FENCED

    def test_it_waits_for_the_end_of_the_transaction_before(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        shell.end(producer)
        assert code(shell.init) is ErrorCode.CONCURRENT_TRANSACTIONS
        shell.told()
        assert shell.init() == (100, 2)


class TestBeginningAnew:
    """KIP-360: a producer says which identity it has."""

    def test_the_known_one_gets_the_next_epoch(self, shell: Shell) -> None:
        producer = shell.init()
        assert shell.init(expected=producer) == (100, 1)

    def test_asking_again_gets_the_same_answer(self, shell: Shell) -> None:
        producer = shell.init()
        assert shell.init(expected=producer) == (100, 1)
        assert shell.init(expected=producer) == (100, 1)

    def test_one_that_was_fenced_does_not(self, shell: Shell) -> None:
        first = shell.init()
        shell.init()
        assert code(lambda: shell.init(expected=first)) is ErrorCode.PRODUCER_FENCED

    def test_another_ones_identity_is_refused(self, shell: Shell) -> None:
        shell.init()
        assert code(lambda: shell.init(expected=(99, 0))) is ErrorCode.PRODUCER_FENCED

    def test_one_that_expired_gets_a_new_identity(self, shell: Shell) -> None:
        assert shell.init(expected=(7, 3)) == (100, 0)

    def test_its_own_open_transaction_is_aborted_and_it_goes_on(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        assert shell.init(expected=producer) == (-1, -1)
        shell.told()
        assert shell.init(expected=producer) == (100, 1)

    def test_one_with_an_old_epoch_aborts_nothing(self, shell: Shell) -> None:
        old = shell.init()
        producer = shell.init()
        shell.add(producer, T0)
        assert code(lambda: shell.init(expected=old)) is ErrorCode.PRODUCER_FENCED
        assert shell.state() is State.ONGOING

    def test_one_whose_transaction_was_taken_from_it_is_fenced(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        shell.init()
        shell.told()
        assert code(lambda: shell.init(expected=producer)) is ErrorCode.PRODUCER_FENCED

    def test_the_end_of_a_transaction_that_it_did_not_hear_of_is_told(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        following = shell.end(producer)
        shell.told()
        assert shell.init(expected=producer) == following


class TestAdding:
    def test_begins_a_transaction(self, shell: Shell) -> None:
        producer = shell.init()
        shell.now_ms = 5_000
        shell.add(producer, T0)
        known = shell.machine.transactions[TX]
        assert known.state is State.ONGOING
        assert known.started_ms == 5_000
        shell.now_ms = 6_000
        shell.add(producer, T1)
        known = shell.machine.transactions[TX]
        assert known.partitions == {T0, T1}
        assert known.started_ms == 5_000

    def test_what_is_a_part_of_it_already_is_not_stored_again(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0, T1)
        stored = len(shell.log)
        shell.add(producer, T1)
        assert len(shell.log) == stored

    def test_the_next_transaction_begins_with_nothing(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        producer = shell.end(producer)
        shell.told()
        shell.add(producer, T1)
        assert shell.machine.transactions[TX].partitions == {T1}

    def test_while_markers_are_written_is_refused_for_now(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        following = shell.end(producer)
        assert code(lambda: shell.add(following, T0)) is ErrorCode.CONCURRENT_TRANSACTIONS
        shell.told()
        shell.add(following, T0)

    @pytest.mark.parametrize(
        ("producer", "refused"),
        [
            ((101, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            ((100, 0), ErrorCode.PRODUCER_FENCED),
            ((100, 2), ErrorCode.PRODUCER_FENCED),
            ((100, -1), ErrorCode.PRODUCER_FENCED),
        ],
    )
    def test_is_for_the_known_producer_alone(
        self, shell: Shell, producer: tuple[int, int], refused: ErrorCode
    ) -> None:
        shell.init()
        shell.init()
        assert code(lambda: shell.add(producer, T0)) is refused
        assert code(lambda: shell.missing(producer, T0)) is refused
        assert code(lambda: shell.end(producer, version=1)) is refused

    def test_nobody_knows_an_id_that_never_began(self, shell: Shell) -> None:
        assert code(lambda: shell.add((1, 0), T0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert code(lambda: shell.end((1, 0))) is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def test_groups_are_a_part_of_it_as_partitions_are(self, shell: Shell) -> None:
        producer = shell.init()
        groups = Participants(groups=frozenset({"g"}))
        shell.apply(shell.machine.add(TX, producer, groups, shell.now_ms))
        shell.add(producer, T0)
        shell.reload()
        known = shell.machine.transactions[TX]
        assert known.partitions == {T0}
        assert known.groups == {"g"}
        shell.end(producer)
        ((ending, _),) = shell.decided
        assert ending.groups == {"g"}
        shell.told()
        assert shell.machine.transactions[TX].groups == frozenset()


class TestVerifying:
    """KIP-890: a leader asks whether its partition is a part of the transaction."""

    def test_tells_what_is_missing(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        assert shell.missing(producer, T0) == set()
        assert shell.missing(producer, T0, T1, T2) == {T1, T2}

    def test_everything_is_missing_where_no_transaction_is_open(self, shell: Shell) -> None:
        producer = shell.init()
        assert shell.missing(producer, T0) == {T0}
        shell.add(producer, T0)
        producer = shell.end(producer)
        shell.told()
        assert shell.missing(producer, T0) == {T0}

    def test_nothing_can_be_said_of_one_that_ends(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        following = shell.end(producer)
        assert code(lambda: shell.missing(following, T0)) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert code(lambda: shell.missing(producer, T0)) is ErrorCode.PRODUCER_FENCED


class TestEndingWithANewEpoch:
    """Clients of transaction version 2."""

    @pytest.mark.parametrize("commit", [True, False])
    def test_raises_the_epoch(self, shell: Shell, commit: bool) -> None:
        producer = shell.init()
        shell.add(producer, T0, T1)
        assert shell.end(producer, commit=commit) == (100, 1)
        ((ending, reason),) = shell.decided
        assert reason is Reason.ASKED
        assert ending.is_committed is commit
        assert ending.epoch == 1
        assert ending.partitions == {T0, T1}
        assert shell.told()
        assert shell.state() is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
        assert shell.identity() == (100, 1)

    @pytest.mark.parametrize("commit", [True, False])
    def test_asking_again_gets_the_same_answer(self, shell: Shell, commit: bool) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        following = shell.end(producer, commit=commit)
        again = code(lambda: shell.end(producer, commit=commit))
        assert again is ErrorCode.CONCURRENT_TRANSACTIONS
        shell.told()
        assert shell.end(producer, commit=commit) == following
        assert len(shell.decided) == 1

    @pytest.mark.parametrize("commit", [True, False])
    def test_the_opposite_is_refused_then(self, shell: Shell, commit: bool) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        shell.end(producer, commit=commit)
        assert code(lambda: shell.end(producer, commit=not commit)) is ErrorCode.INVALID_TXN_STATE
        shell.told()
        assert code(lambda: shell.end(producer, commit=not commit)) is ErrorCode.INVALID_TXN_STATE

    @pytest.mark.parametrize("late_commit", [True, False])
    def test_one_that_was_held_back_never_ends_a_later_transaction(
        self, shell: Shell, late_commit: bool
    ) -> None:
        first = shell.init()
        shell.add(first, T0)
        second = shell.end(first)
        shell.told()
        shell.add(second, T1)
        late = code(lambda: shell.end(first, commit=late_commit))
        assert late is ErrorCode.PRODUCER_FENCED
        assert shell.state() is State.ONGOING
        shell.end(second)
        late = code(lambda: shell.end(first, commit=late_commit))
        assert late is ErrorCode.PRODUCER_FENCED
        shell.told()
        late = code(lambda: shell.end(first, commit=late_commit))
        assert late is ErrorCode.PRODUCER_FENCED

    def test_a_commit_of_nothing_is_refused(self, shell: Shell) -> None:
        producer = shell.init()
        assert code(lambda: shell.end(producer)) is ErrorCode.INVALID_TXN_STATE

    def test_an_abort_of_nothing_fences_what_may_be_under_way(self, shell: Shell) -> None:
        producer = shell.init()
        following = shell.end(producer, commit=False)
        assert following == (100, 1)
        assert shell.state() is State.COMPLETE_ABORT
        assert shell.decided == []
        assert code(lambda: shell.add(producer, T0)) is ErrorCode.PRODUCER_FENCED
        assert shell.end(producer, commit=False) == following
        assert shell.end(following, commit=False) == (100, 2)

    def test_the_next_one_cannot_end_before_this_one_has(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        following = shell.end(producer)
        ended = code(lambda: shell.end(following, commit=False))
        assert ended is ErrorCode.CONCURRENT_TRANSACTIONS

    def test_complete_counts_once_and_for_the_transaction_it_is_of(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        following = shell.end(producer)
        ((ending, _),) = shell.decided
        assert shell.apply(shell.machine.complete(TX, ending, shell.now_ms))
        assert not shell.apply(shell.machine.complete(TX, ending, shell.now_ms))
        shell.add(following, T0)
        shell.end(following)
        assert not shell.apply(shell.machine.complete(TX, ending, shell.now_ms))
        assert shell.state() is State.PREPARE_COMMIT


class TestEndingInTheSameEpoch:
    """Older clients."""

    @pytest.mark.parametrize("commit", [True, False])
    def test_keeps_it(self, shell: Shell, commit: bool) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        assert shell.end(producer, commit=commit, version=1) == producer
        ((ending, _),) = shell.decided
        assert (ending.epoch, ending.client_version) == (0, 0)
        again = code(lambda: shell.end(producer, commit=commit, version=1))
        assert again is ErrorCode.CONCURRENT_TRANSACTIONS
        opposite = code(lambda: shell.end(producer, commit=not commit, version=1))
        assert opposite is ErrorCode.INVALID_TXN_STATE
        shell.told()
        assert shell.end(producer, commit=commit, version=1) == producer
        opposite = code(lambda: shell.end(producer, commit=not commit, version=1))
        assert opposite is ErrorCode.INVALID_TXN_STATE
        shell.add(producer, T1)

    @pytest.mark.parametrize("commit", [True, False])
    def test_of_nothing_is_refused(self, shell: Shell, commit: bool) -> None:
        producer = shell.init()
        refused = code(lambda: shell.end(producer, commit=commit, version=1))
        assert refused is ErrorCode.INVALID_TXN_STATE

    def test_one_whose_transaction_timed_out_is_fenced(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        shell.tick(TIMEOUT_MS / 1000)
        shell.told()
        for commit in (True, False):
            refused = code(lambda c=commit: shell.end(producer, commit=c, version=1))  # type: ignore[misc]
            assert refused is ErrorCode.PRODUCER_FENCED


class TestEpochsThatAreUsedUp:
    def test_the_end_of_a_transaction_brings_a_new_producer_id(self, shell: Shell) -> None:
        producer = at_epoch(shell, MAX_EPOCH)
        shell.add(producer, T0)
        following = shell.end(producer)
        assert following == (101, 0)
        ((ending, _),) = shell.decided
        assert (ending.producer_id, ending.epoch) == (100, MAX_EPOCH + 1)
        again = code(lambda: shell.end(producer))
        assert again is ErrorCode.CONCURRENT_TRANSACTIONS
        shell.reload()
        shell.told()
        assert shell.identity() == following
        assert shell.end(producer) == following
        shell.add(following, T1)
        assert code(lambda: shell.end(producer)) is not ErrorCode.NONE
        assert shell.state() is State.ONGOING

    def test_so_does_an_abort_of_nothing(self, shell: Shell) -> None:
        producer = at_epoch(shell, MAX_EPOCH)
        assert shell.end(producer, commit=False) == (101, 0)
        assert shell.end(producer, commit=False) == (101, 0)

    def test_so_does_beginning(self, shell: Shell) -> None:
        producer = at_epoch(shell, MAX_EPOCH)
        assert shell.init() == (101, 0)
        assert code(lambda: shell.init(expected=producer)) is ErrorCode.PRODUCER_FENCED

    def test_beginning_anew_is_answered_again(self, shell: Shell) -> None:
        producer = at_epoch(shell, MAX_EPOCH)
        assert shell.init(expected=producer) == (101, 0)
        shell.reload()
        assert shell.init(expected=producer) == (101, 0)

    def test_no_epoch_is_ever_negative_or_too_large(self, shell: Shell) -> None:
        producer = at_epoch(shell, MAX_EPOCH)
        shell.add(producer, T0)
        shell.tick(TIMEOUT_MS / 1000)
        assert shell.identity() == (100, 2**15 - 1)
        shell.told()
        assert shell.init() == (101, 0)

    def test_the_epoch_that_fences_is_given_to_nobody(self, shell: Shell) -> None:
        producer = at_epoch(shell, MAX_EPOCH)
        shell.add(producer, T0)
        shell.tick(TIMEOUT_MS / 1000)
        refused = code(lambda: shell.end(producer, commit=False))
        assert refused is ErrorCode.CONCURRENT_TRANSACTIONS
        shell.told()
        assert code(lambda: shell.end(producer, commit=False)) is ErrorCode.PRODUCER_FENCED
        assert shell.init() == (101, 0)

    def test_aborting_its_own_transaction_does_not_fence_the_producer(self, shell: Shell) -> None:
        producer = at_epoch(shell, MAX_EPOCH)
        shell.add(producer, T0)
        assert shell.init(expected=producer) == (-1, -1)
        shell.told()
        following = shell.init(expected=producer)
        assert following == (101, 0)
        assert shell.init(expected=producer) == following
        shell.add(following, T0)


class TestTimes:
    def test_a_transaction_that_is_open_for_too_long_is_aborted(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        due = shell.machine.next_tick_ms
        assert due == shell.now_ms + TIMEOUT_MS
        shell.tick(TIMEOUT_MS / 1000 - 1)
        assert shell.state() is State.ONGOING
        shell.tick(1)
        ((ending, reason),) = shell.decided
        assert reason is Reason.TIMED_OUT
        assert (ending.state, ending.epoch) == (State.PREPARE_ABORT, 1)
        assert code(lambda: shell.add(producer, T0)) is ErrorCode.PRODUCER_FENCED
        shell.tick(TIMEOUT_MS / 1000)
        assert len(shell.decided) == 1

    def test_adding_partitions_gives_it_no_more_time(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        shell.tick(TIMEOUT_MS / 1000 - 1)
        shell.add(producer, T1)
        shell.tick(1)
        assert shell.state() is State.PREPARE_ABORT

    def test_its_producer_can_abort_it_then_and_go_on(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        shell.tick(TIMEOUT_MS / 1000)
        shell.told()
        assert code(lambda: shell.end(producer)) is ErrorCode.INVALID_TXN_STATE
        following = shell.end(producer, commit=False)
        assert following == (100, 1)
        shell.add(following, T0)

    def test_one_that_ends_is_not_aborted(self, shell: Shell) -> None:
        producer = shell.init()
        shell.add(producer, T0)
        shell.end(producer)
        shell.tick(10 * TIMEOUT_MS / 1000)
        assert shell.state() is State.PREPARE_COMMIT

    def test_an_id_that_nobody_uses_is_forgotten(self, shell: Shell) -> None:
        shell.init()
        producer = shell.init(name="other")
        shell.tick(EXPIRATION_MS / 2000)
        shell.add(producer, T0, name="other")
        producer = shell.end(producer, name="other")
        shell.told("other")
        shell.tick(EXPIRATION_MS / 2000)
        assert list(shell.machine.transactions) == ["other"]
        shell.reload()
        assert list(shell.machine.transactions) == ["other"]
        assert shell.init() == (102, 0)

    def test_one_that_is_in_use_is_not(self, shell: Shell) -> None:
        shell.init(timeout_ms=2 * EXPIRATION_MS)
        shell.add(shell.identity(), T0)
        shell.tick(EXPIRATION_MS / 1000)
        assert shell.state() is State.ONGOING

    def test_times_do_not_pile_up(self, shell: Shell) -> None:
        producer = shell.init()
        for _ in range(500):
            shell.add(producer, T0)
            producer = shell.end(producer)
            shell.told()
        assert len(shell.machine._times) < 100
        assert shell.machine.next_tick_ms == shell.now_ms + EXPIRATION_MS


class TestListing:
    def test_by_state_producer_and_age(self, shell: Shell) -> None:
        shell.init(name="empty")
        producer = shell.init(name="open")
        shell.add(producer, T0, name="open")

        def names(**filters: object) -> set[str]:
            chosen = {"states": (), "producer_ids": (), "longer_ms": -1, **filters}
            found = shell.machine.listed(now_ms=shell.now_ms, **chosen)  # type: ignore[arg-type]
            return {one.transactional_id for one in found}

        assert names() == {"empty", "open"}
        assert names(states={State.ONGOING}) == {"open"}
        assert names(producer_ids={100}) == {"empty"}
        shell.now_ms += 1_000
        assert names(longer_ms=999) == {"open"}
        assert names(longer_ms=1_000) == set()
        assert names(longer_ms=0) == {"open"}


class TestACoordinatorOfBefore:
    """It does not know yet that another broker leads, which has heard more: it writes first."""

    @pytest.fixture
    def producer(self, shell: Shell) -> tuple[int, int]:
        """One that has committed a transaction, as an older client."""
        producer = shell.init()
        shell.add(producer, T0)
        shell.end(producer, version=1)
        shell.told()
        shell.log.clear()
        return producer

    def written(self, shell: Shell, operation: Callable[[], Any], refusal: ErrorCode) -> None:
        """An operation is refused so, and writes what is known already."""
        known = dict(shell.machine.transactions)
        assert code(operation) is refusal
        assert len(shell.log) == 1
        assert shell.machine.transactions == known

    @pytest.mark.parametrize("commit", [True, False])
    def test_refuses_the_end_of_a_transaction_of_which_it_knows_nothing(
        self, shell: Shell, producer: tuple[int, int], commit: bool
    ) -> None:
        version = 2 if commit else 1
        ended = lambda: shell.end(producer, commit=commit, version=version)  # noqa: E731
        self.written(shell, ended, ErrorCode.INVALID_TXN_STATE)

    def test_takes_no_commit_for_that_of_the_transaction_before(
        self, shell: Shell, producer: tuple[int, int]
    ) -> None:
        assert shell.end(producer, version=1) == producer
        assert len(shell.log) == 1

    def test_fences_nobody_whose_epoch_is_a_later_one(
        self, shell: Shell, producer: tuple[int, int]
    ) -> None:
        later = producer[0], producer[1] + 1
        fenced = ErrorCode.PRODUCER_FENCED
        self.written(shell, lambda: shell.end(later, version=1), fenced)
        shell.log.clear()
        self.written(shell, lambda: shell.end(later), fenced)
        shell.log.clear()
        self.written(shell, lambda: shell.add(later, T0), fenced)
        shell.log.clear()
        self.written(shell, lambda: shell.missing(later, T0), fenced)
        shell.log.clear()
        self.written(shell, lambda: shell.init(expected=later), fenced)
        shell.add(producer, T0)
        shell.log.clear()
        self.written(shell, lambda: shell.init(expected=later), fenced)

    def test_refuses_nobody_at_once_who_may_have_begun_there(
        self, shell: Shell, producer: tuple[int, int]
    ) -> None:
        another, unknown = (producer[0] + 1, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING
        self.written(shell, lambda: shell.add(another, T0), unknown)
        shell.log.clear()
        self.written(shell, lambda: shell.missing(another, T0), unknown)
        shell.log.clear()
        self.written(shell, lambda: shell.end(another), unknown)
        shell.log.clear()
        self.written(shell, lambda: shell.init(expected=another), ErrorCode.PRODUCER_FENCED)
        shell.log.clear()
        self.written(shell, lambda: shell.add(producer, T0, name="new"), unknown)
        assert [value for _, value in shell.log] == [None]

    def test_refuses_at_once_what_is_certain(self, shell: Shell, producer: tuple[int, int]) -> None:
        shell.init()
        shell.log.clear()
        assert code(lambda: shell.end(producer)) is ErrorCode.PRODUCER_FENCED
        assert code(lambda: shell.add(producer, T0)) is ErrorCode.PRODUCER_FENCED
        assert shell.log == []
