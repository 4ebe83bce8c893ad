"""The checker finds each kind of contradiction, and none in what a correct log shows."""

from collections.abc import Callable
from copy import deepcopy
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .checker import Kind, assert_correct, check
from .history import Ends, History, Outcome, Poll, Send, Transaction
from .model import Model

runs = st.builds(lambda random: Model(random).run(150), st.randoms(use_true_random=False))


@settings(max_examples=50)
@given(runs)
def test_a_correct_log_shows_nothing_wrong(history: History) -> None:
    assert_correct(history)
    assert check(History.from_json(history.to_json())).findings == []


def wrote(
    client: str,
    *values: str,
    at: int = 0,
    outcome: Outcome = Outcome.COMMITTED,
    started: float = 0.0,
) -> Transaction:
    """A transaction that sent values to partition 0, one after the other from an offset on."""
    sends = [Send(0, value, at + number) for number, value in enumerate(values)]
    return Transaction(client, started, sends, [], started + 1, started + 2, outcome)


def read(
    client: str, *records: tuple[int, str], when: float = 9.0, session: int = 0
) -> Transaction:
    """A transaction that polled records of partition 0."""
    polls = [Poll(0, list(records), when, session)]
    return Transaction(client, when, [], polls, when, when, Outcome.COMMITTED)


def kinds(*transactions: Transaction, final: str | None = None, **more: object) -> set[Kind]:
    """The kinds of what is found; ``final``: the values at the end, a space for a marker."""
    there = [(offset, value) for offset, value in enumerate(final or "") if value != " "]
    history = History([*transactions], final={0: there} if final is not None else {})
    for name, value in more.items():
        setattr(history, name, value)
    return check(history).kinds


def test_what_is_as_it_should_be() -> None:
    assert kinds(wrote("p", "a", "b"), read("c", (0, "a"), (1, "b")), final="ab ") == set()
    assert kinds(wrote("p", "a", outcome=Outcome.UNKNOWN), final="") == set()
    assert kinds(wrote("p", "a", outcome=Outcome.UNKNOWN), read("c", (0, "a")), final="a ") == set()


def test_an_aborted_value_that_is_read() -> None:
    aborted = wrote("p", "a", outcome=Outcome.ABORTED)
    assert kinds(aborted, read("c", (0, "a"))) == {Kind.ABORTED_READ}
    assert kinds(aborted, final="a ") == {Kind.ABORTED_READ}


def test_a_value_that_is_read_before_it_is_committed() -> None:
    late = wrote("p", "a", started=20.0)
    assert kinds(late, read("c", (0, "a"), when=5.0)) == {Kind.EARLY_READ}


def test_a_transaction_that_polls_what_it_sent() -> None:
    one = wrote("p", "a")
    one.polls.append(Poll(0, [(0, "a")], 0.5))
    assert kinds(one) == {Kind.EARLY_READ}


def test_a_value_that_nobody_sent() -> None:
    assert kinds(read("c", (0, "x"))) == {Kind.PHANTOM}


def test_a_committed_value_that_is_gone() -> None:
    assert kinds(wrote("p", "a"), final=" ") == {Kind.LOST_WRITE}


def test_a_value_that_was_polled_and_is_gone() -> None:
    unknown = wrote("p", "a", outcome=Outcome.UNKNOWN)
    assert kinds(unknown, read("c", (0, "a")), final=" ") == {Kind.LOST_WRITE}


def test_half_a_transaction() -> None:
    unknown = wrote("p", "a", "b", outcome=Outcome.UNKNOWN)
    assert kinds(unknown, final="a ") == {Kind.TORN}


def test_two_values_at_one_offset() -> None:
    assert kinds(wrote("p", "a"), wrote("q", "b")) == {Kind.INCONSISTENT}


def test_one_value_at_two_offsets() -> None:
    assert kinds(wrote("p", "a"), read("c", (0, "a"), (5, "a"))) == {
        Kind.INCONSISTENT,
    }


def test_transactions_that_read_each_other() -> None:
    one, other = wrote("p", "a"), wrote("q", "b", at=1)
    one.polls.append(Poll(0, [(1, "b")], 1.5))
    other.polls.append(Poll(0, [(0, "a")], 1.5))
    assert kinds(one, other) == {Kind.CYCLE}


def test_writes_that_are_interleaved_are_no_fault() -> None:
    one, other = wrote("p", "a", "c"), wrote("q", "b", "d")
    one.sends[0].offset, one.sends[1].offset = 0, 3
    other.sends[0].offset, other.sends[1].offset = 1, 2
    assert kinds(one, other, final="abdc  ") == set()


def test_a_consumer_that_passes_over_a_value() -> None:
    assert kinds(wrote("p", "a", "b", "c"), read("c", (0, "a"), (2, "c")), final="abc ") == {
        Kind.SKIP,
    }


def test_a_consumer_that_passes_over_markers_and_aborted_values_is_no_fault() -> None:
    first, last = wrote("p", "a"), wrote("p", "c", at=4)
    aborted = wrote("q", "b", at=2, outcome=Outcome.ABORTED)
    assert kinds(first, aborted, last, read("c", (0, "a"), (4, "c")), final="a   c ") == set()


def test_values_of_one_client_in_the_wrong_order() -> None:
    one = wrote("p", "a", "b")
    one.sends[0].offset, one.sends[1].offset = 1, 0
    assert kinds(one) == {Kind.INVERSION}
    assert kinds(wrote("p", "b", at=1), wrote("p", "a")) == {Kind.INVERSION}


def test_a_consumer_that_goes_back() -> None:
    both = wrote("p", "a", "b")
    again = read("c", (1, "b"), (0, "a"))
    assert kinds(both, again) == {Kind.NON_MONOTONIC}
    apart = [read("c", (1, "b")), read("c", (0, "a"), session=1)]
    assert kinds(both, *apart) == set()


def test_a_value_that_is_consumed_twice() -> None:
    twice = [read("c", (0, "a")), read("c", (0, "a"), session=1)]
    assert kinds(wrote("p", "a"), *twice) == {Kind.CONSUMED_TWICE}
    twice[0].outcome = Outcome.ABORTED
    assert kinds(wrote("p", "a"), *twice) == set()


def test_a_value_that_a_group_has_passed_and_not_consumed() -> None:
    positions = {"c": {0: 2}}
    assert kinds(wrote("p", "a"), final="a ", positions=positions) == {Kind.NOT_CONSUMED}
    assert kinds(wrote("p", "a"), read("c", (0, "a")), final="a ", positions=positions) == set()


@pytest.mark.parametrize(
    ("looks", "is_wrong"),
    [
        ([(3, 5, 0.0, 1.0), (4, 6, 2.0, 3.0)], False),
        ([(3, 5, 0.0, 1.0), (2, 6, 2.0, 3.0)], True),
        ([(3, 5, 0.0, 1.0), (3, 4, 2.0, 3.0)], True),
        ([(3, 5, 0.0, 1.0), (0, 5, 2.0, 3.0)], True),
        ([(3, 5, 0.0, 9.0), (2, 5, 2.0, 3.0)], False),  # at the same time
        ([(6, 5, 0.0, 1.0)], True),
    ],
)
def test_ends_that_go_back(looks: list[tuple[int, int, float, float]], is_wrong: bool) -> None:
    ends = [Ends(0, *look) for look in looks]
    assert kinds(ends=ends) == ({Kind.WENT_BACK} if is_wrong else set())


# Faults in the midst of long histories


def _committed(history: History, random: Random) -> Transaction:
    return random.choice(
        [
            one
            for one in history.transactions
            if one.outcome is Outcome.COMMITTED and len(one.sends) > 1
        ]
    )


def _abort(history: History, random: Random) -> None:
    _committed(history, random).outcome = Outcome.ABORTED


def _lose(history: History, random: Random) -> None:
    gone = {send.value for send in _committed(history, random).sends}
    for index, records in history.final.items():
        history.final[index] = [one for one in records if one[1] not in gone]


def _tear(history: History, random: Random) -> None:
    send = random.choice(_committed(history, random).sends)
    records = history.final[send.partition]
    history.final[send.partition] = [one for one in records if one[1] != send.value]


def _move(history: History, random: Random) -> None:
    send = next(send for send in _committed(history, random).sends if send.offset is not None)
    assert send.offset is not None
    send.offset += 1


def _cross(history: History, random: Random) -> None:
    writer = next(one for one in history.transactions if one.polls and one.sends)
    value = writer.polls[0].records[0][1]
    other = next(o for o in history.transactions if any(s.value == value for s in o.sends))
    send = writer.sends[0]
    other.polls.append(Poll(send.partition, [(send.offset or 0, send.value)], 1e9, 99))


def _skip(history: History, random: Random) -> None:
    polls = [poll for one in history.transactions for poll in one.polls if len(poll.records) > 2]
    del random.choice(polls).records[1]


def _repeat(history: History, random: Random) -> None:
    polls = [poll for one in history.transactions for poll in one.polls if poll.records]
    poll = random.choice(polls)
    poll.records.append(poll.records[0])


def _invert(history: History, random: Random) -> None:
    client = next(one.client for one in history.transactions if len(one.sends) > 1)
    ours = [one for one in history.transactions if one.client == client and one.sends]
    ours[0].sends, ours[-1].sends = ours[-1].sends, ours[0].sends


def _go_back(history: History, random: Random) -> None:
    look = random.choice([one for one in history.ends if one.stable > 0])
    history.ends.append(Ends(look.partition, 0, look.end, 1e9, 1e9))


def _consume_again(history: History, random: Random) -> None:
    consumed = [o for o in history.transactions if o.polls and o.outcome is Outcome.COMMITTED]
    one = deepcopy(random.choice(consumed))
    one.sends = []
    for poll in one.polls:
        poll.session = 1_000
    history.transactions.append(one)


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (_abort, Kind.ABORTED_READ),
        (_lose, Kind.LOST_WRITE),
        (_tear, Kind.TORN),
        (_move, Kind.INCONSISTENT),
        (_cross, Kind.CYCLE),
        (_skip, Kind.SKIP),
        (_repeat, Kind.NON_MONOTONIC),
        (_invert, Kind.INVERSION),
        (_go_back, Kind.WENT_BACK),
        (_consume_again, Kind.CONSUMED_TWICE),
    ],
)
def test_a_fault_is_found_in_the_midst_of_a_long_history(
    plant: Callable[[History, Random], None], kind: Kind
) -> None:
    for seed in range(5):
        random = Random(seed)
        history = deepcopy(Model(random).run(300))
        assert check(history).findings == []
        plant(history, random)
        assert kind in check(history).kinds


def test_the_report_says_what_is_wrong_and_is_short() -> None:
    phantoms = [read("c", (number, f"x{number}")) for number in range(100)]
    with pytest.raises(AssertionError) as failure:
        assert_correct(History(phantoms))
    text = str(failure.value)
    assert "100 transactions (100 committed, 0 aborted, 0 unknown), 0 records sent" in text
    assert "phantom: x0 at 0 of 0 was never sent" in text
    assert "phantom: 100 in all" in text
    assert "x7" not in text
