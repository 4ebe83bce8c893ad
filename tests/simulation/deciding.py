"""What the controller makes of what it sees."""

from qbus.broker.metadata.partition_states import Policy, elect, without
from qbus.metadata.znodes import NO_LEADER, PartitionStateNode

from .rules import REPLICAS
from .store import Snapshot


def decide(snapshot: Snapshot, wanted: Policy) -> PartitionStateNode | None:
    """The state that is due: without those who are gone, and with a leader if there can be one."""
    state = snapshot.state
    for replica in state.isr:
        if replica not in snapshot.live:
            state = without(state, replica, wanted)
    if state.leader not in snapshot.live:
        elected = elect(state, REPLICAS, snapshot.live, snapshot.controller_epoch, wanted=wanted)
        if elected.leader != NO_LEADER or elected.isr != state.isr:
            state = elected
    return None if state == snapshot.state else state
