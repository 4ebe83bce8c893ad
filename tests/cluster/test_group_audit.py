"""The audit of a group's members notices two owners, lost commits and what nobody read."""

from .group_audit import Event, Story, double_owners, lost_commits, unread


def story(
    name: str, *events: tuple[str, float, dict[int, int]], died: float | None = None
) -> Story:
    return Story(name, [Event(*event) for event in events], died)


def test_a_partition_may_change_hands() -> None:
    first = story("a", ("assigned", 1.0, {0: -1}), ("revoked", 2.0, {0: -1}))
    second = story("b", ("assigned", 2.1, {0: -1}), died=3.0)
    third = story("c", ("assigned", 3.5, {0: -1}))
    assert double_owners([first, second, third]) == []


def test_two_owners_at_a_time_are_found() -> None:
    first = story("a", ("assigned", 1.0, {0: -1}), ("revoked", 2.0, {0: -1}))
    second = story("b", ("assigned", 1.9, {0: -1}))
    (wrong,) = double_owners([second, first])
    assert wrong.startswith("0: ")


def test_one_that_was_expelled_may_learn_of_it_late_and_one_that_died_not_at_all() -> None:
    first = story("a", ("assigned", 1.0, {0: -1}), ("lost", 9.0, {0: -1}))
    second = story("b", ("assigned", 2.0, {0: -1}), died=4.0)
    third = story("c", ("assigned", 3.9, {0: -1}))
    assert double_owners([first, second]) == []
    assert len(double_owners([second, third])) == 1


def test_whoever_begins_before_an_earlier_commit_has_lost_it() -> None:
    first = story("a", ("assigned", 1.0, {0: -1}), ("committed", 1.5, {0: 7}))
    good = story("b", ("assigned", 2.0, {0: -1}), ("read", 2.1, {0: 7}), ("read", 2.2, {0: 8}))
    bad = story("c", ("assigned", 2.0, {0: -1}), ("read", 2.1, {0: 6}))
    assert lost_commits([first, good]) == []
    assert lost_commits([first, bad]) == ["c reads 0 from 6, not 7"]


def test_what_is_committed_after_a_partition_was_given_away_need_not_be_known() -> None:
    first = story("a", ("committed", 2.05, {0: 9}))
    second = story("b", ("assigned", 2.0, {0: -1}), ("read", 2.1, {0: 7}))
    assert lost_commits([first, second]) == []


def test_what_nobody_read_is_missing() -> None:
    first = story("a", ("read", 1.0, {0: 0}), ("read", 1.1, {0: 1}), ("read", 1.2, {0: 1}))
    assert unread([first], {0: 3, 1: 0}) == {0: 1}
