"""Leader epochs: who wrote what, and where each ended."""

import pytest

from qbus.broker.log import EpochEnd, EpochStart, LeaderEpochCache


@pytest.fixture
def epochs() -> LeaderEpochCache:
    return LeaderEpochCache([EpochStart(0, 0), EpochStart(2, 50), EpochStart(5, 80)])


def test_a_new_epoch_begins_where_its_first_record_is() -> None:
    epochs = LeaderEpochCache()
    assert epochs.latest_epoch == -1
    epochs.assign(3, 10)
    epochs.assign(3, 11)
    epochs.assign(2, 12)
    epochs.assign(4, 20)
    assert epochs.entries == (EpochStart(3, 10), EpochStart(4, 20))
    assert epochs.dirty


def test_an_epoch_without_records_gives_way(epochs: LeaderEpochCache) -> None:
    epochs.assign(6, 100)
    epochs.assign(7, 100)
    assert epochs.entries[-2:] == (EpochStart(5, 80), EpochStart(7, 100))


@pytest.mark.parametrize(
    ("epoch", "end"),
    [
        (0, EpochEnd(0, 50)),
        (1, EpochEnd(0, 50)),
        (2, EpochEnd(2, 80)),
        (4, EpochEnd(2, 80)),
        (5, EpochEnd(5, 120)),
        (6, EpochEnd(-1, -1)),
        (-1, EpochEnd(-1, -1)),
    ],
)
def test_an_epoch_ends_where_the_next_begins_and_the_last_with_the_log(
    epochs: LeaderEpochCache, epoch: int, end: EpochEnd
) -> None:
    assert epochs.end_offset_for(epoch, 120) == end


def test_an_epoch_older_than_all_known_ended_where_they_begin() -> None:
    assert LeaderEpochCache([EpochStart(4, 30)]).end_offset_for(2, 90) == EpochEnd(2, 30)
    assert LeaderEpochCache().end_offset_for(0, 90) == EpochEnd(-1, -1)


def test_epochs_of_leaders_that_wrote_nothing_ended_with_the_log() -> None:
    epochs = LeaderEpochCache([EpochStart(4, 30)])
    ends = [epochs.end_of(epoch, 90, leader_epoch=7) for epoch in (3, 4, 5, 7, 8)]
    assert ends == [(3, 30), (4, 90), (4, 90), (7, 90), (-1, -1)]
    assert LeaderEpochCache().end_of(1, 90, leader_epoch=2) == (1, 90)


def test_an_offset_belongs_to_the_epoch_that_began_last_before_it(
    epochs: LeaderEpochCache,
) -> None:
    assert [epochs.epoch_at(offset) for offset in (0, 49, 50, 79, 80, 1000)] == [0, 0, 2, 2, 5, 5]
    assert LeaderEpochCache([EpochStart(4, 30)]).epoch_at(29) == -1


def test_truncation_forgets_epochs_that_begin_at_the_end_or_later(
    epochs: LeaderEpochCache,
) -> None:
    epochs.truncate_from_end(80)
    assert list(epochs.entries) == [EpochStart(0, 0), EpochStart(2, 50)]
    epochs.truncate_from_end(0)
    assert list(epochs.entries) == []


def test_removing_records_in_front_moves_the_first_epoch(epochs: LeaderEpochCache) -> None:
    epochs.truncate_from_start(60)
    assert list(epochs.entries) == [EpochStart(2, 60), EpochStart(5, 80)]
    epochs.truncate_from_start(80)
    assert list(epochs.entries) == [EpochStart(5, 80)]


def test_nothing_is_dirty_when_nothing_changes(epochs: LeaderEpochCache) -> None:
    epochs.truncate_from_end(1000)
    epochs.truncate_from_start(0)
    epochs.assign(5, 90)
    assert not epochs.dirty
