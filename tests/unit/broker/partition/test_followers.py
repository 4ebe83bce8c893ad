"""The high watermark and the replicas in sync, as a leader sees them."""

from qbus.broker.metadata.partition_states import Policy
from qbus.broker.partition.followers import Followers
from qbus.metadata.znodes import PartitionStateNode

LAG = 10.0
TWO = Policy(min_isr=2)


def followers(
    isr: tuple[int, ...] = (1, 2, 3), elr: tuple[int, ...] = (), wanted: Policy = TWO
) -> Followers:
    """Broker 1 leads 2 and 3, with a log up to offset 100."""
    return Followers(
        1,
        (1, 2, 3),
        PartitionStateNode(1, 5, isr, 1, elr),
        7,
        wanted=wanted,
        epoch_start=100,
        high_watermark=90,
        now=0.0,
    )


def everyone_lives(_broker: int, _epoch: int) -> bool:
    return True


def test_the_high_watermark_is_what_all_in_sync_have() -> None:
    leader = followers()
    assert not leader.advance(120)
    leader.asked(2, 0, 110, 120, 1.0)
    assert not leader.advance(120)
    leader.asked(3, 0, 105, 120, 1.0)
    assert leader.advance(120)
    assert leader.high_watermark == 105


def test_the_leaders_own_stable_storage_counts_too() -> None:
    leader = followers()
    for replica in (2, 3):
        leader.asked(replica, 0, 110, 120, 1.0)
    assert leader.advance(104)
    assert leader.high_watermark == 104


def test_it_never_goes_back() -> None:
    leader = followers()
    for replica in (2, 3):
        leader.asked(replica, 0, 110, 120, 1.0)
    leader.advance(120)
    leader.asked(2, 0, 95, 120, 2.0)
    assert not leader.advance(120)
    assert leader.high_watermark == 110


def test_who_is_out_of_sync_does_not_hold_it_back() -> None:
    leader = followers(isr=(1, 2))
    leader.asked(2, 0, 110, 120, 1.0)
    assert leader.advance(120)
    assert leader.high_watermark == 110


def test_it_stands_still_while_too_few_are_in_sync_or_others_are_eligible() -> None:
    assert not followers(isr=(1,)).advance(120)
    assert not followers(isr=(1,), elr=(2,), wanted=Policy(1)).advance(120)
    assert followers(isr=(1,), wanted=Policy(1)).advance(120)


def test_who_lags_too_long_is_proposed_to_leave() -> None:
    leader = followers()
    leader.asked(2, 0, 120, 120, 9.0)
    leader.asked(3, 0, 110, 120, 9.0)
    assert leader.propose(9.0, LAG, everyone_lives) is None
    proposal = leader.propose(11.0, LAG, everyone_lives)
    assert proposal is not None
    assert proposal.state.isr == (1, 2)
    assert (proposal.version, proposal.added) == (7, {})


def test_who_always_has_what_there_was_before_does_not_lag() -> None:
    leader = followers()
    for second in range(40):
        leader.asked(2, 0, 100 + 10 * second, 110 + 10 * second, float(second))
        leader.asked(3, 0, 110 + 10 * second, 110 + 10 * second, float(second))
    assert leader.propose(40.0, LAG, everyone_lives) is None


def test_until_it_is_known_to_have_left_it_still_holds_back() -> None:
    leader = followers()
    leader.asked(2, 0, 120, 120, 11.0)
    proposal = leader.propose(11.0, LAG, everyone_lives)
    assert proposal is not None
    assert not leader.advance(120)
    leader.learned(proposal.state, 8)
    assert leader.advance(120)


def test_who_has_all_that_is_committed_and_of_earlier_epochs_is_proposed_to_join() -> None:
    leader = followers(isr=(1, 2))
    leader.asked(2, 0, 120, 120, 1.0)
    leader.asked(3, 4, 99, 120, 1.0)
    assert leader.propose(1.0, LAG, everyone_lives) is None  # the epoch began at 100
    leader.asked(3, 4, 100, 120, 1.0)
    proposal = leader.propose(1.0, LAG, everyone_lives)
    assert proposal is not None
    assert proposal.state.isr == (1, 2, 3)
    assert proposal.added == {3: 4}


def test_whoever_is_proposed_to_join_holds_back_at_once() -> None:
    leader = followers(isr=(1, 2))
    leader.asked(2, 0, 120, 120, 1.0)
    leader.asked(3, 4, 100, 120, 1.0)
    leader.propose(1.0, LAG, everyone_lives)
    assert leader.advance(120)
    assert leader.high_watermark == 100


def test_who_is_registered_anew_is_not_taken_for_what_it_was() -> None:
    leader = followers(isr=(1, 2))
    leader.asked(2, 0, 120, 120, 1.0)
    leader.asked(3, 4, 120, 120, 1.0)
    assert leader.propose(1.0, LAG, lambda broker, epoch: (broker, epoch) == (3, 5)) is None
    leader.asked(3, 5, 10, 120, 1.0)
    assert not leader.asked(3, 4, 120, 120, 1.0)  # late words of the one before
    assert leader.propose(1.0, LAG, everyone_lives) is None


def test_a_member_that_is_registered_anew_holds_back_until_it_asks() -> None:
    leader = followers()
    for replica in (2, 3):
        leader.asked(replica, 0, 100, 120, 1.0)
    leader.advance(120)
    leader.asked(3, 1, 95, 120, 2.0)
    leader.asked(2, 0, 120, 120, 2.0)
    assert not leader.advance(120)


def test_one_change_at_a_time() -> None:
    leader = followers(isr=(1, 2))
    leader.asked(2, 0, 120, 120, 1.0)
    leader.asked(3, 0, 120, 120, 1.0)
    assert leader.propose(1.0, LAG, everyone_lives) is not None
    assert leader.propose(1.0, LAG, everyone_lives) is None
    leader.refused()
    assert leader.propose(1.0, LAG, everyone_lives) is not None


def test_what_the_store_says_later_settles_what_was_proposed() -> None:
    leader = followers(isr=(1, 2))
    leader.asked(2, 0, 120, 120, 1.0)
    leader.asked(3, 0, 100, 120, 1.0)
    leader.propose(1.0, LAG, everyone_lives)
    for version, is_settled in ((7, False), (8, True)):
        leader.learned(leader.state, version)
        assert (leader.proposed is None) == is_settled
        assert leader.version == version


def test_needing_fewer_is_written_down_before_anything_is_acknowledged() -> None:
    leader = followers(isr=(1,), elr=(2,), wanted=Policy(1))
    proposal = leader.propose(1.0, LAG, everyone_lives)
    assert proposal is not None
    assert (proposal.state.isr, proposal.state.elr) == ((1,), ())
    leader.learned(proposal.state, 8)
    assert leader.advance(120)


def test_strangers_are_not_heard() -> None:
    assert not followers().asked(9, 0, 100, 120, 1.0)


def test_how_far_each_is_behind() -> None:
    leader = followers()
    leader.asked(2, 0, 110, 120, 1.0)
    assert leader.lag(120) == {2: 10, 3: 120}
    assert leader.caught_up(2)
    assert not leader.caught_up(3)
