"""How the state of a partition may change: who may lead it, and who may be said to hold it all.

Everything that was acknowledged is on every replica of ``isr`` and of ``elr`` (KIP-966). That holds
because a leader acknowledges nothing while fewer than ``min_isr`` replicas are in sync or ``elr``
holds any, so that whoever falls out of sync then has missed nothing: it stays eligible. As soon as
enough are in sync again ``elr`` is emptied, and only then does the high watermark move on.

So the last replica that is in sync is no replica that leads alone and loses the rest: when it
fails, no other one is elected, and it may come back (the "last replica standing").

Functions of the state alone, for whoever writes it by compare-and-set.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from qbus.metadata.znodes import NO_LEADER, PartitionStateNode


class Policy(NamedTuple):
    """What a topic asks for.

    ``is_durable``: replicas acknowledge from stable storage. Where they do so from memory, a leader
    may have lost its power, and what it held, before anybody knows. So whoever falls out of sync
    stays eligible until the leader has written, in a change of its own, that it goes on without.
    """

    min_isr: int
    is_durable: bool = True


def policy(min_isr: int, replicas: int, *, is_durable: bool) -> Policy:
    """For ``min.insync.replicas``, which counts as no more than there are replicas.

    Else nothing would ever be visible.
    """
    return Policy(max(1, min(min_isr, replicas)), is_durable)


def is_acknowledging(state: PartitionStateNode, wanted: Policy) -> bool:
    """Whether the high watermark may move on in this state."""
    return len(state.isr) >= wanted.min_isr and not state.elr


def with_isr(state: PartitionStateNode, isr: tuple[int, ...], wanted: Policy) -> PartitionStateNode:
    """The same leader, with ``isr`` in sync; who left them stays eligible, or does not.

    For the leader alone: where replicas acknowledge from memory, only it may write anybody off.
    """
    last_in_sync = NO_LEADER if isr else state.last_in_sync
    return state._replace(isr=isr, elr=_eligible(state, isr, wanted), last_in_sync=last_in_sync)


def without(state: PartitionStateNode, replica: int, wanted: Policy) -> PartitionStateNode:
    """``replica`` has failed, with all that it holds: it neither leads nor is in sync."""
    changed = _shrunk(state, tuple(other for other in state.isr if other != replica), wanted)
    return _without_leader(changed) if state.leader == replica else changed


def resigning(state: PartitionStateNode, replica: int) -> PartitionStateNode:
    """``replica`` leads no more; it keeps what it held.

    For whoever was started anew, before it says that it is there: it does not know any more what it
    did as the leader in that epoch.
    """
    return _without_leader(state) if state.leader == replica else state


def forgetting(state: PartitionStateNode, replica: int, wanted: Policy) -> PartitionStateNode:
    """``replica`` may have lost some of what it held: it is not eligible until it has caught up.

    For whoever comes back from a crash without stable storage, before it says that it is there.
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
    """The state after an election: a new leader epoch, even when the leader stays (KIP-101).

    What a leader wrote before and lost in a crash, and what it writes now at the same offsets, must
    not pass for the same. The leader comes from the live replicas in sync, in order of preference,
    else from those that are eligible; else it is the one that was in sync last, when nobody else is
    eligible; else, if ``unclean``, any that lives, and what the others hold beyond it is lost.
    Otherwise nobody leads.
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
    """The state when other ``replicas`` are to hold it: a new leader epoch, so that all notice.

    Who is not among them any more is neither in sync nor eligible, and leads no more.
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
    """What others than the leader make of it: see ``Policy.is_durable``."""
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
