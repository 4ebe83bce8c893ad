"""Leaders come from the in-sync replicas, and every election is a new epoch."""

from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.controller.election import elect, first_state
from qbus.broker.metadata_image import PartitionInfo
from qbus.metadata.znodes import NO_LEADER, PartitionStateNode


def partition(
    leader: int, replicas: tuple[int, ...], isr: tuple[int, ...], epoch: int = 4
) -> PartitionInfo:
    return PartitionInfo(leader, epoch, replicas, isr)


def test_a_new_partition_is_led_by_its_preferred_replica() -> None:
    assert first_state((2, 1), 7) == PartitionStateNode(2, 0, (2, 1), 7)


def test_the_first_in_sync_replica_that_lives_leads() -> None:
    elected = elect(partition(1, (1, 2, 3), (1, 3)), {2, 3}, 9)
    assert elected == PartitionStateNode(3, 5, (3,), 9, elr=(1,))


def test_a_leader_that_comes_back_leads_in_a_new_epoch() -> None:
    assert elect(partition(1, (1,), (1,)), {1}, 9) == PartitionStateNode(1, 5, (1,), 9)


def test_without_a_live_in_sync_replica_nobody_leads_and_the_last_ones_are_remembered() -> None:
    elected = elect(partition(1, (1, 2), (1,)), {2}, 9)
    assert elected == PartitionStateNode(NO_LEADER, 5, (1,), 9)


brokers = st.sets(st.integers(0, 5), max_size=6)


@given(replicas=st.permutations(range(6)), in_sync=brokers, live=brokers)
def test_never_elects_a_replica_that_may_miss_records(
    replicas: list[int], in_sync: set[int], live: set[int]
) -> None:
    isr = tuple(replica for replica in replicas if replica in in_sync)
    elected = elect(partition(NO_LEADER, tuple(replicas), isr), live, 1)
    assert set(elected.isr) <= set(isr)
    assert set(elected.isr) | set(elected.elr) == set(isr)
    if in_sync & live:
        assert elected.leader_epoch == 5
        assert elected.leader in in_sync & live
        assert elected.leader in elected.isr
    else:
        assert elected.leader == NO_LEADER
        assert elected.isr == isr
