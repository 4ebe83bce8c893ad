"""The audit of a group's members notices two owners, lost commits and what nobody read."""

from .group_audit import (
    Event,
    Sighting,
    Story,
    commits_set_back,
    double_owners,
    expelled,
    expelled_early,
    foreign_reads,
    forgotten,
    gaps,
    late_commits,
    lost_commits,
    pauses,
    read_again,
    unread,
)


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


def test_nobody_has_what_a_killed_member_had_before_its_session_ends() -> None:
    first = story("a", ("assigned", 1.0, {0: -1}), died=3.0)
    second = story("b", ("assigned", 9.0, {0: -1}))
    assert double_owners([first, second], session=5.0) == []
    assert len(double_owners([first, second], session=7.0)) == 1


def test_a_member_reads_only_what_it_has() -> None:
    good = story("a", ("assigned", 1.0, {0: -1}), ("read", 1.1, {0: 0}), ("revoked", 2.0, {0: -1}))
    late = story("b", *good.events, ("read", 2.1, {0: 1}))
    early = story("c", ("read", 0.9, {0: 0}), *good.events)
    assert foreign_reads([good]) == []
    assert len(foreign_reads([late, early])) == 2


def read_from(name: str, since: float, *offsets: int, committed: int = 0) -> Story:
    reads = (("read", since + 0.1, {0: offset}) for offset in offsets)
    commits = [("committed", since + 0.2, {0: committed})] if committed else []
    return story(name, ("assigned", since, {0: -1}), *reads, *commits)


def ended(one: Story, how: str, at: float) -> Story:
    return story(one.name, *one.events, (how, at, {0: -1}))


def test_only_what_a_member_did_not_commit_before_it_died_may_be_read_again() -> None:
    dead = read_from("a", 1.0, 0, 1, 2, 3, committed=2)
    dead.died_at = 2.0
    assert read_again([dead, read_from("b", 3.0, 2, 3)]) == []
    (wrong,) = read_again([dead, read_from("b", 3.0, 1, 2, 3)])
    assert wrong.startswith("0: 1 ")


def test_what_a_member_gave_up_is_not_read_again() -> None:
    whole = read_from("a", 1.0, 0, 1, 2)
    assert len(read_again([ended(whole, "revoked", 2.0), read_from("b", 3.0, 2)])) == 1
    assert read_again([ended(whole, "lost", 2.0), read_from("b", 3.0, 2)]) == []
    assert len(read_again([read_from("a", 1.0, 0, 0)])) == 1


def test_a_member_that_was_expelled_lost_what_it_had_then() -> None:
    first = story("a", *read_from("a", 1.0, 0, 1).events, ("expelled", 4.0, {}))
    late = ended(first, "revoked", 5.0)
    assert double_owners([late, read_from("b", 3.0, 0, 1)]) == []
    assert read_again([late, read_from("b", 3.0, 0, 1)]) == []
    again = story("a", *late.events, ("assigned", 6.0, {0: -1}), ("revoked", 8.0, {0: -1}))
    assert len(double_owners([again, read_from("b", 7.0)])) == 1


def test_nobody_has_what_a_member_had_before_it_can_have_been_expelled() -> None:
    late = story("a", ("assigned", 1.0, {0: -1, 1: -1}), ("lost", 20.0, {0: -1}))
    assert double_owners([late, read_from("b", 11.5)], session=10.0) == []
    assert len(double_owners([late, read_from("b", 10.5)], session=10.0)) == 1
    again = story("a", late.events[0], ("assigned", 5.0, {2: -1}), late.events[1])
    assert len(double_owners([again, read_from("b", 11.5)], session=10.0)) == 1
    at_once = story("a", ("assigned", 1.0, {0: -1}), ("lost", 2.0, {0: -1}))
    assert double_owners([at_once, read_from("b", 2.5)], session=10.0) == []


def test_a_member_that_has_left_has_nothing() -> None:
    gone = story("a", *read_from("a", 1.0, 0).events, ("left", 2.0, {}))
    assert not gone.holds
    assert double_owners([gone, read_from("b", 2.1)]) == []
    assert len(double_owners([gone, read_from("b", 1.9)])) == 1
    assert len(read_again([gone, read_from("b", 2.1, 0)])) == 1


def test_others_may_have_what_a_member_had_that_is_leaving_unless_it_says_when_it_gave_it_up() -> (
    None
):
    began = read_from("a", 1.0, 0).events
    leaving, left = Event("leaving", 2.0, {}), Event("left", 3.0, {})
    assert double_owners([story("a", *began, leaving, left), read_from("b", 2.5)]) == []
    assert len(double_owners([story("a", *began, leaving, left), read_from("b", 1.9)])) == 1
    told = story("a", *began, leaving, ("revoked", 2.8, {0: -1}), left)
    assert len(double_owners([told, read_from("b", 2.5)])) == 1


def test_a_member_that_has_just_been_told_of_partitions_is_not_expelled() -> None:
    early = story("a", ("assigned", 1.0, {0: -1}), ("expelled", 9.0, {}), ("lost", 12.0, {0: -1}))
    assert len(expelled_early([early], 10.0)) == 1
    assert expelled_early([early], 7.0) == []
    assert expelled([early, read_from("c", 1.0, 0)]) == ["a"]
    idle = ended(ended(read_from("d", 1.0, 0), "revoked", 2.0), "lost", 3.0)
    assert (expelled_early([idle], 10.0), expelled([idle])) == ([], [])
    again = story("b", *early.events, ("assigned", 13.0, {0: -1}), ("lost", 14.0, {0: -1}))
    assert len(expelled_early([again], 7.0)) == 1


def test_nobody_commits_what_another_one_was_given_meanwhile() -> None:
    heir = read_from("b", 3.0, 0)
    late = [("committing", 3.5, {0: 1}), ("committed", 3.6, {0: 1})]
    before = [("committing", 2.9, {0: 1}), ("committed", 3.6, {0: 1})]
    for end in (["lost"], ["revoked"], []):
        ends = [(how, 4.0, {0: -1}) for how in end]
        assert (
            late_commits([story("a", *read_from("a", 1.0, 0).events, *before, *ends), heir]) == []
        )
        (wrong,) = late_commits([story("a", *read_from("a", 1.0, 0).events, *late, *ends), heir])
        assert "1 by a" in wrong
    had_before = ended(read_from("b", 0.5), "revoked", 0.9)
    assert late_commits([story("a", *read_from("a", 1.0, 0).events, *late), had_before]) == []
    back = story("a", ("assigned", 1.0, {0: -1}), ("assigned", 3.2, {0: -1}), *late)
    assert len(late_commits([back, heir])) == 1, "it never gave it up"


def test_a_member_reads_one_record_after_the_other_from_what_is_committed() -> None:
    assert gaps([read_from("a", 1.0, 0, 1, 2)]) == []
    assert len(gaps([read_from("a", 1.0, 0, 2)])) == 1
    assert len(gaps([read_from("a", 1.0, 0, 1, 0, 1)])) == 1
    assert len(gaps([read_from("a", 1.0, 1)])) == 1, "nobody has committed the first"
    first = ended(read_from("a", 1.0, 0, 1, 2, committed=2), "lost", 2.0)
    assert gaps([first, read_from("b", 3.0, 2)]) == []
    assert len(gaps([first, read_from("b", 3.0, 3)])) == 1, "the third was read, and not committed"
    tried = story("a", *first.events[:-1], ("committing", 1.9, {0: 3}), first.events[-1])
    assert gaps([tried, read_from("b", 3.0, 3)]) == [], "it may be committed"


def test_what_a_member_had_that_was_expelled_it_may_read_until_it_learns_of_that() -> None:
    heir = ended(read_from("b", 3.0, 0, 1), "revoked", 4.0)
    late = read_from("a", 1.0, 0)
    late = story("a", *late.events, ("read", 3.5, {0: 1}))
    assert read_again([ended(late, "lost", 5.0), heir]) == [], "it had not committed the first"
    assert len(read_again([ended(late, "revoked", 5.0), heir])) == 2
    later = read_from("c", 4.5, 1)
    assert len(read_again([heir, ended(later, "lost", 5.0)])) == 1
    assert len(read_again([ended(late, "lost", 5.0), heir, later])) == 1


def test_a_commit_below_an_earlier_one_is_found() -> None:
    first = story("a", ("committed", 1.0, {0: 5}), ("committed", 2.0, {0: 5, 1: 9}))
    assert commits_set_back([first, story("b", ("committed", 3.0, {0: 6}))]) == []
    assert len(commits_set_back([first, story("b", ("committed", 1.5, {0: 4}))])) == 1


def test_who_asks_sees_all_that_was_committed_before() -> None:
    told = [story("a", ("committed", 1.0, {0: 5}))]
    assert forgotten(told, [Sighting(0.9, {0: 0}), Sighting(1.1, {0: 5})]) == []
    assert len(forgotten(told, [Sighting(1.1, {0: 4})])) == 1
    assert len(forgotten(told, [Sighting(0.8, {0: 5}), Sighting(0.9, {0: 4})])) == 1


def test_how_long_partitions_are_nobodys() -> None:
    first = ended(read_from("a", 1.0, 0), "revoked", 2.0)
    second = read_from("b", 2.5, 1)
    second.died_at = 4.0
    found = pauses([first, second, read_from("c", 9.0, 1)])
    assert found == {"revoked": [0.5], "died": [5.0]}
