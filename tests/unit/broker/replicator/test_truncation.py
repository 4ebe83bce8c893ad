"""Where a follower truncates its log, for all possible histories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.log import EpochEnd, LeaderEpochCache
from qbus.broker.replicator.truncation_offset import Truncation, find_truncation


def epochs_of(entries: list[int]) -> LeaderEpochCache:
    cache = LeaderEpochCache()
    for offset, epoch in enumerate(entries):
        cache.assign(epoch, offset)
    return cache


@pytest.mark.parametrize(
    ("ours", "answer", "expected"),
    [
        ([1, 1, 1], EpochEnd(1, 3), Truncation(3, is_final=True)),  # the same
        ([1, 1, 1], EpochEnd(1, 5), Truncation(3, is_final=True)),  # behind
        ([1, 1, 1], EpochEnd(1, 2), Truncation(2, is_final=True)),  # too much of an epoch
        ([1, 1, 3], EpochEnd(1, 2), Truncation(2, is_final=True)),  # an epoch the leader has not
        ([1, 1, 3], EpochEnd(1, 1), Truncation(1, is_final=True)),
        (
            [1, 3, 3],
            EpochEnd(2, 9),
            Truncation(1, is_final=False),
        ),  # KIP-279: neither has the other's
        ([3, 3], EpochEnd(-1, -1), Truncation(0, is_final=True)),  # nothing in common
    ],
)
def test_the_leaders_answer_gives_the_truncation(
    ours: list[int], answer: EpochEnd, expected: Truncation
) -> None:
    assert find_truncation(epochs_of(ours), 0, len(ours), answer) == expected


def test_nothing_below_the_log_start_is_truncated() -> None:
    cache = LeaderEpochCache()
    cache.assign(3, 50)
    assert find_truncation(cache, 50, 60, EpochEnd(3, 40)) == Truncation(50, is_final=True)
    assert find_truncation(cache, 50, 60, EpochEnd(-1, -1)) == Truncation(50, is_final=True)


# Each epoch's leader appends to some log it was elected with: histories that can come to pass.
histories = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), max_size=6)


def log_of(history: list[tuple[int, int]], common: list[int], first_epoch: int) -> list[int]:
    entries = list(common)
    for number, (kept, count) in enumerate(history):
        del entries[max(len(common), len(entries) - kept) :]
        entries += [first_epoch + 2 * number] * count
    return entries


@given(
    common=st.lists(st.just(0), max_size=4),
    ours=histories,
    theirs=histories,
)
def test_the_remaining_log_is_a_prefix_of_the_leaders(
    common: list[int], ours: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    log, leader = log_of(ours, common, 1), log_of(theirs, common, 2)
    leaders_epochs = epochs_of(leader)
    for _ in range(len(log) + 1):
        epochs = epochs_of(log)
        if epochs.latest_epoch < 0:
            break
        asked = epochs.latest_epoch
        known = leaders_epochs.latest_epoch
        answer = (
            EpochEnd(known, len(leader))
            if 0 <= known < asked
            else leaders_epochs.end_offset_for(asked, len(leader))
        )
        end, is_final = find_truncation(epochs, 0, len(log), answer)
        del log[end:]
        if is_final:
            break
    else:
        pytest.fail("they never agree")
    assert log == leader[: len(log)]
