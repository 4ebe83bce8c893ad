"""What members are to have: epochs count changes, and those that come together share one."""

import pytest

from qbus.broker.consumer_group import Member
from qbus.broker.consumer_group.nodes import decode, group_path
from qbus.broker.consumer_group.roster import Roster
from qbus.broker.consumer_group.targets import Targets

from .scene import Topics


class Scene:
    """Targets of the members of a roster."""

    def __init__(self, epoch: int = 0) -> None:
        topics = Topics(t=4)
        self.assignors = ["uniform", "range"]
        self.roster = Roster("g", topics)
        self.targets = Targets(self.roster, topics, lambda: self.assignors, epoch)

    def enter(self, *names: str, assignor: str | None = None) -> None:
        for name in names:
            self.roster.enter(Member(name, topics=frozenset({"t"}), assignor=assignor))
        self.targets.begin_epoch()

    @property
    def sizes(self) -> list[int]:
        return [len(member.target) for member in self.roster.members]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_all_that_an_event_changes_is_one_epoch(scene: Scene) -> None:
    scene.enter("a")
    scene.enter("b")
    assert (scene.targets.epoch, scene.targets.made_in) == (1, 0)
    scene.targets.end_event()
    scene.enter("c")
    assert scene.targets.epoch == 2


def test_they_are_made_once_in_an_epoch(scene: Scene) -> None:
    scene.enter("a", "b")
    scene.targets.make(100.0)
    assert (scene.targets.are_due, scene.targets.made_in) == (False, 1)
    assert scene.sizes == [2, 2]
    scene.targets.end_event()
    scene.targets.make(200.0)
    assert not scene.targets.has_changed


def test_large_groups_wait_for_others_to_come(scene: Scene) -> None:
    scene.enter(*(f"m{number}" for number in range(100)))
    scene.targets.make(100.0)
    assert scene.targets.due_at == pytest.approx(100.2)
    scene.targets.end_event()
    scene.enter("late")
    scene.targets.make(100.1)
    assert (scene.targets.epoch, scene.targets.made_in) == (2, 1)
    scene.targets.make(scene.targets.due_at)
    assert scene.targets.made_in == 2


def test_nobody_waits_for_longer_than_a_second(scene: Scene) -> None:
    scene.enter(*(f"m{number}" for number in range(1_000)))
    scene.targets.make(100.0)
    assert scene.targets.due_at == pytest.approx(101.0)


def test_a_member_that_left_for_a_while_keeps_of_what_it_has_what_it_is_to_have(
    scene: Scene,
) -> None:
    scene.enter("a")
    scene.targets.make(100.0)
    (member,) = scene.roster.members
    scene.roster.set_held(member, member.target, frozenset())
    member.epoch = -2
    scene.targets.end_event()
    scene.enter("b")
    scene.targets.make(200.0)
    assert member.assigned == member.target
    assert len(member.assigned) == 2


def test_most_members_choose_the_assignor_of_those_that_are_allowed(scene: Scene) -> None:
    assert scene.targets.assignor == "uniform"
    scene.enter("a", "b", assignor="range")
    scene.enter("c", assignor="uniform")
    assert scene.targets.assignor == "range"
    scene.assignors = ["uniform"]
    assert scene.targets.assignor == "uniform"


def test_both_epochs_are_stored(scene: Scene) -> None:
    scene.enter("a")
    assert decode({group_path(): scene.targets.encode()}) == (1, 0, [])
    scene.targets.make(100.0)
    assert scene.targets.has_changed
    assert decode({group_path(): scene.targets.encode()}) == (1, 1, [])
