"""The decisions of the simulated controller."""

from qbus.broker.metadata.partition_states import Policy, elect, without
from qbus.metadata.znodes import NO_LEADER, PartitionStateNode

from .rules import REPLICAS
from .store import Snapshot


def decide(snapshot: Snapshot, wanted: Policy) -> PartitionStateNode | None:
    """Return the state that is due: without dead replicas, with a leader if possible."""
    state = snapshot.state
    for replica in state.isr:
        if replica not in snapshot.live:
            state = without(state, replica, wanted)
    if state.leader not in snapshot.live:
        elected = elect(state, REPLICAS, snapshot.live, snapshot.controller_epoch, wanted=wanted)
        if elected.leader != NO_LEADER or elected.isr != state.isr:
            state = elected
    return None if state == snapshot.state else state
