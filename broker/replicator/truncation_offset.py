"""Where a follower truncates its log so that it agrees with its leader's (KIP-101, KIP-279).

The follower names the latest epoch in its log. The leader responds with the latest epoch in its own
log up to that one, and the offset where that epoch ends. The high watermark is no guide: the one
that a follower knows may be too low, and truncating there would remove acknowledged records.
"""

from typing import NamedTuple

from ..log import EpochEnd, LeaderEpochCache

UNDEFINED = -1


class Truncation(NamedTuple):
    """Truncate to ``end_offset``; ``is_final``: what remains agrees with the leader's log."""

    end_offset: int
    is_final: bool


def find_truncation(
    epochs: LeaderEpochCache, start_offset: int, end_offset: int, answer: EpochEnd
) -> Truncation:
    """Return the truncation that the leader's ``answer`` about our latest epoch asks for.

    Our log reaches from ``start_offset`` to ``end_offset``. If the truncation is not final, ask the
    leader about what is then our latest epoch.
    """
    if answer.epoch == UNDEFINED:  # the leader's log has no epoch as old as ours
        return Truncation(start_offset, is_final=True)
    if answer.epoch >= epochs.latest_epoch:
        return Truncation(_between(start_offset, answer.end_offset, end_offset), is_final=True)
    ours = epochs.end_offset_for(answer.epoch, end_offset)
    if ours.epoch == answer.epoch:
        end = min(ours.end_offset, answer.end_offset)
        return Truncation(_between(start_offset, end, end_offset), is_final=True)
    # We have no records of that epoch: what follows it in our log is not in the leader's.
    cut = _between(start_offset, ours.end_offset, end_offset)
    return Truncation(cut, is_final=cut == start_offset)


def _between(low: int, offset: int, high: int) -> int:
    return max(low, min(offset, high))
