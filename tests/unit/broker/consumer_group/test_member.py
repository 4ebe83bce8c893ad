"""A member comes to what it is to have, whatever responses were lost."""

from qbus.broker.consumer_group import Member, MemberState, Partitions

P0, P1, P2 = ((b"t", index) for index in range(3))


def of(*partitions: tuple[bytes, int]) -> Partitions:
    return frozenset(partitions)


def having(*assigned: tuple[bytes, int], target: Partitions, state: MemberState) -> Member:
    held = of(*assigned)
    return Member("m", epoch=4, assigned=held, target=target, state=state, told=held)


def reconcile(member: Member, *owned: tuple[bytes, int], is_patient: bool = True) -> bool:
    return member.reconcile(5, of(*owned), lambda _: True, is_patient=is_patient)


def test_what_it_does_not_list_it_may_not_know_and_is_told_again() -> None:
    member = having(P0, P1, target=of(P0), state=MemberState.STABLE)
    assert not reconcile(member, P0)
    assert (member.told, member.assigned) == (None, of(P0, P1))
    assert reconcile(member, P0, P1)
    assert (member.state, member.revoking) == (MemberState.UNREVOKED, of(P1))
    assert reconcile(member, P0)
    assert (member.state, member.epoch, member.held) == (MemberState.STABLE, 5, of(P0))


def test_silence_shows_nothing_as_a_request_may_be_repeated() -> None:
    member = having(P0, P1, target=of(P0), state=MemberState.STABLE)
    member.listed = of(P0)
    assert not member.reconcile(5, None, lambda _: True)
    assert (member.told, member.assigned) == (None, of(P0, P1))
    member = having(P0, P1, target=of(P0), state=MemberState.STABLE)
    member.listed = of(P0, P1)
    assert member.reconcile(5, None, lambda _: True)
    assert (member.state, member.revoking) == (MemberState.UNREVOKED, of(P1))


def test_what_it_gave_up_before_is_free_meanwhile() -> None:
    member = having(P0, P1, target=of(P0), state=MemberState.UNREVOKED)
    member.revoking = of(P2)
    assert reconcile(member, P0)
    assert (member.state, member.held) == (MemberState.UNRELEASED, of(P0, P1))
    assert member.told is None


def test_a_member_that_never_takes_it_over_is_not_told_for_ever() -> None:
    member = having(P0, P1, target=of(P0), state=MemberState.STABLE)
    for _ in range(20):
        assert not reconcile(member, P0)
    assert member.to_release == of(P1)
    assert reconcile(member, P0, is_patient=False)
    assert (member.state, member.revoking, member.offers) == (MemberState.UNREVOKED, of(P1), 0)
    assert reconcile(member, P0, is_patient=False)
    assert (member.state, member.epoch, member.held) == (MemberState.STABLE, 5, of(P0))
    assert not member.to_release
