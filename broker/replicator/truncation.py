"""Where a follower has to cut its log so that it agrees with its leader's (KIP-101, KIP-279).

The follower names the last epoch that its log has; the leader answers with the last epoch up to
that one which its own log has, and where that epoch ends there. Never the high watermark: a
follower may be behind in what it knows of it, and cut off what was acknowledged.
"""

from typing import NamedTuple

from ..log import EpochEnd, LeaderEpochCache

UNDEFINED = -1


class Truncation(NamedTuple):
    """Cut the log back to ``end_offset``; ``is_final``: what is left agrees with the leader's."""

    end_offset: int
    is_final: bool


def agree(
    epochs: LeaderEpochCache, start_offset: int, end_offset: int, answer: EpochEnd
) -> Truncation:
    """What the leader's ``answer`` about our last epoch means for our log.

    The log reaches from ``start_offset`` to ``end_offset``. When it is not final, the leader is to
    be asked again about what is then our last epoch.
    """
    if answer.epoch == UNDEFINED:  # the leader's log has nothing that is as old as ours
        return Truncation(start_offset, is_final=True)
    if answer.epoch >= epochs.latest_epoch:
        return Truncation(_between(start_offset, answer.end_offset, end_offset), is_final=True)
    ours = epochs.end_offset_for(answer.epoch, end_offset)
    if ours.epoch == answer.epoch:
        end = min(ours.end_offset, answer.end_offset)
        return Truncation(_between(start_offset, end, end_offset), is_final=True)
    # We have no records of that epoch, so what follows it in our log is not in the leader's.
    cut = _between(start_offset, ours.end_offset, end_offset)
    return Truncation(cut, is_final=cut == start_offset)


def _between(low: int, offset: int, high: int) -> int:
    return max(low, min(offset, high))
