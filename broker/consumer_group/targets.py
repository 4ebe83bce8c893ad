"""What the members of a group of KIP-848 are to have: their targets, which the broker assigns.

Any change of members, subscriptions or topics begins a new epoch of the group, one for all that an
event changes. The targets are made anew then, or a little later: members that come by the hundred
share assignments, which cost most in large groups.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from .assignors import ASSIGNORS, Reader
from .member import NONE
from .nodes import encode_group
from .roster import Catalog, Roster

_MEMBERS_PER_SECOND: Final = 500
"""A group of so many members is assigned anew once a second at most, a smaller one more often."""
_MOST_PAUSE: Final = 1.0


class Targets:
    """The targets of one group's members.

    epoch: counts the changes of members, subscriptions and topics.
    made_in: the epoch that the targets were made in.
    due_at: the monotonic time in seconds from when they may be made anew.
    has_changed: an epoch is to be stored.
    """

    def __init__(
        self,
        roster: Roster,
        catalog: Catalog,
        assignors: Callable[[], Sequence[str]],
        epoch: int,
    ) -> None:
        """``assignors``: returns the names of those that members may ask for now."""
        self.epoch = epoch
        self.made_in = epoch
        self.due_at = -math.inf
        self.has_changed = False
        self._roster = roster
        self._catalog = catalog
        self._assignors = assignors
        self._former_epoch = epoch  # before the present event
        self._encoded: bytes | None = None

    @property
    def are_due(self) -> bool:
        """Whether they are to be made anew."""
        return self.epoch > self.made_in

    @property
    def assignor(self) -> str:
        """The name of the assignor that most members ask for."""
        known = self._assignors()
        votes = Counter(one.assignor for one in self._roster.members if one.assignor in known)
        most = max(votes.values(), default=0)
        return next((name for name in known if votes[name] == most), known[0])

    def encode(self) -> bytes:
        """Encode the two epochs, as they are stored."""
        if self._encoded is None:
            self._encoded = encode_group(self.epoch, self.made_in)
        return self._encoded

    def begin_epoch(self) -> None:
        """Begin a new epoch, one for all that an event changes."""
        self.epoch = self._former_epoch + 1
        self._note_change()

    def end_event(self) -> None:
        """What changes from now on begins another epoch."""
        self._former_epoch = self.epoch
        self.has_changed = False

    def make(self, now: float) -> None:
        """Make the targets of the present epoch, unless that was done, or others just now."""
        if not self.are_due or now < self.due_at:
            return
        self.due_at = now + min(len(self._roster.members) / _MEMBERS_PER_SECOND, _MOST_PAUSE)
        topics = sorted(self._roster.subscription)
        known = {name: found for name in topics if (found := self._catalog.find(name))}
        readers = [
            Reader(
                member.member_id,
                member.instance_id,
                frozenset(known[name][0] for name in member.subscription if name in known),
                member.target,
            )
            for member in self._roster.members
        ]
        assign = ASSIGNORS[self.assignor]
        for member_id, target in assign(readers, dict(known.values())).items():
            member = self._roster.get(member_id, None)
            if member.target != target:
                member.target = target
                self._roster.touch(member)
            if member.has_left and not member.assigned <= target:
                self._roster.set_held(member, member.assigned & target, NONE)
        self.made_in = self.epoch
        self._note_change()

    def _note_change(self) -> None:
        self._encoded = None
        self.has_changed = True
