"""How the state of a partition may change: its leader, its ISR and its eligible replicas.

Every acknowledged record is on every replica of ``isr`` and of ``elr`` (KIP-966). The reason: a
leader acknowledges nothing while fewer than ``min_isr`` replicas are in sync or ``elr`` is not
empty, so a replica that leaves the ISR then has missed nothing and stays eligible. When enough
replicas are in sync again, ``elr`` is emptied, and only then the high watermark advances.

When the last replica in sync fails, no replica without its records is elected; it may come back
(the "last replica standing").

The functions are pure; their results are written by compare-and-set.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from qbus.metadata.znodes import NO_LEADER, PartitionStateNode


class Policy(NamedTuple):
    """The guarantees that a topic asks for.

    ``is_durable``: replicas acknowledge from stable storage. Where they acknowledge from memory, a
    power cut may have cost a leader its records before anyone knows. So a replica that leaves the
    ISR stays eligible until the leader itself has written that it continues without it.
    """

    min_isr: int
    is_durable: bool = True


def policy(min_isr: int, replicas: int, *, is_durable: bool) -> Policy:
    """Build the policy for ``min.insync.replicas``, limited to the number of replicas.

    Without the limit, no record would ever become visible.
    """
    return Policy(max(1, min(min_isr, replicas)), is_durable)


def is_acknowledging(state: PartitionStateNode, wanted: Policy) -> bool:
    """Whether the high watermark may advance in this state."""
    return len(state.isr) >= wanted.min_isr and not state.elr


def with_isr(state: PartitionStateNode, isr: tuple[int, ...], wanted: Policy) -> PartitionStateNode:
    """Return the state with another ``isr`` under the same leader.

    For the leader only: where replicas acknowledge from memory, only it may drop a replica from the
    eligible ones.
    """
    last_in_sync = NO_LEADER if isr else state.last_in_sync
    return state._replace(isr=isr, elr=_eligible(state, isr, wanted), last_in_sync=last_in_sync)


def without(state: PartitionStateNode, replica: int, wanted: Policy) -> PartitionStateNode:
    """Return the state after ``replica`` failed: it neither leads nor is in sync."""
    changed = _shrunk(state, tuple(other for other in state.isr if other != replica), wanted)
    return _without_leader(changed) if state.leader == replica else changed


def resigning(state: PartitionStateNode, replica: int) -> PartitionStateNode:
    """Return the state in which ``replica`` no longer leads, but keeps its records.

    For a broker that has restarted, before it registers: it no longer knows what it did as the
    leader in that epoch.
    """
    return _without_leader(state) if state.leader == replica else state


def forgetting(state: PartitionStateNode, replica: int, wanted: Policy) -> PartitionStateNode:
    """Return the state after ``replica`` may have lost records: not eligible until caught up.

    For a broker that comes back from a crash without stable storage, before it registers.
    """
    known = replica in state.isr or replica in state.elr
    changed = without(state, replica, wanted)
    changed = changed._replace(elr=tuple(other for other in changed.elr if other != replica))
    if known and not changed.isr and not changed.elr:
        changed = changed._replace(last_in_sync=replica)
    return changed


def elect(
    state: PartitionStateNode,
    replicas: Sequence[int],
    live: Collection[int],
    controller_epoch: int,
    *,
    wanted: Policy,
    unclean: bool = False,
) -> PartitionStateNode:
    """Return the state after an election: a new leader epoch, even if the leader stays (KIP-101).

    The new epoch tells apart the records that a leader lost in a crash and those that it writes now
    at the same offsets. The leader is the first of ``replicas`` that is live and in sync; else the
    first live eligible one; else the one that was in sync last, if none is eligible; else, if
    ``unclean``, the first live one, and records that it lacks are lost. Otherwise there is no
    leader.
    """
    leader = _choose(state, [replica for replica in replicas if replica in live], unclean=unclean)
    if leader == NO_LEADER:
        elected = _without_leader(state)
    elif leader in state.isr:
        isr = tuple(replica for replica in state.isr if replica in live)
        elected = _shrunk(state, isr, wanted)._replace(leader=leader)
        elected = elected._replace(leader_epoch=state.leader_epoch + 1)
    elif leader in state.elr:
        elected = _shrunk(state, (leader,), wanted)
        elected = elected._replace(leader=leader, leader_epoch=state.leader_epoch + 1)
    else:
        elected = PartitionStateNode(leader, state.leader_epoch + 1, (leader,), controller_epoch)
    return elected._replace(controller_epoch=controller_epoch)


def moved(
    state: PartitionStateNode,
    replicas: Sequence[int],
    live: Collection[int],
    controller_epoch: int,
    *,
    wanted: Policy,
) -> PartitionStateNode:
    """Return the state with other ``replicas``: a new leader epoch, so that all of them notice.

    Removed replicas are neither in sync nor eligible, and do not lead.
    """
    kept = state._replace(
        isr=tuple(replica for replica in state.isr if replica in replicas),
        elr=tuple(replica for replica in state.elr if replica in replicas),
        controller_epoch=controller_epoch,
    )
    if kept.leader == NO_LEADER:
        return kept
    if kept.leader in replicas:
        return kept._replace(leader_epoch=kept.leader_epoch + 1)
    return elect(_without_leader(kept), replicas, live, controller_epoch, wanted=wanted)


def _choose(state: PartitionStateNode, live: Sequence[int], *, unclean: bool) -> int:
    for candidates in (state.isr, state.elr):
        for replica in live:
            if replica in candidates:
                return replica
    if not state.isr and not state.elr and state.last_in_sync in live:
        return state.last_in_sync
    return live[0] if unclean and live else NO_LEADER


def _without_leader(state: PartitionStateNode) -> PartitionStateNode:
    if state.leader == NO_LEADER:
        return state
    return state._replace(leader=NO_LEADER, leader_epoch=state.leader_epoch + 1)


def _shrunk(state: PartitionStateNode, isr: tuple[int, ...], wanted: Policy) -> PartitionStateNode:
    """Shrink the ISR on behalf of another broker than the leader; see ``Policy.is_durable``."""
    changed = with_isr(state, isr, wanted)
    if wanted.is_durable:
        return changed
    eligible = dict.fromkeys((*state.isr, *state.elr))
    return changed._replace(elr=tuple(replica for replica in eligible if replica not in isr))


def _eligible(state: PartitionStateNode, isr: tuple[int, ...], wanted: Policy) -> tuple[int, ...]:
    left = tuple(replica for replica in state.isr if replica not in isr)
    if len(isr) >= wanted.min_isr and (wanted.is_durable or not left):
        return ()
    return (*left, *(replica for replica in state.elr if replica not in isr))
