"""What keeps a client waiting, said in its log: within seconds, and then less and less often."""

import logging
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)

_FIRST_INTERVAL_S = 2.0
_LONGEST_INTERVAL_S = 60.0
_FORGET_AFTER_S = 300.0
_MOST_SAID = 20
"""Subjects that are named at a time; thousands of partitions may have the same trouble."""
USUAL_S = 1.0
"""Seconds for which something that was just made, or moves, may be without a leader."""
SILENT_S = 3.0
"""Seconds after which a missing answer, or connection, is said."""


class _Trouble:
    """One trouble that lasts: since when, when it was met last, and when it is said next."""

    __slots__ = ("interval", "is_said", "last", "next_at", "since")

    def __init__(self, now: float) -> None:
        self.since = self.last = now
        self.next_at = now
        self.interval = _FIRST_INTERVAL_S
        self.is_said = False


class TroubleLog:
    """Says which things a client waits for, and why, as WARNING; and when that is over, as INFO.

    A trouble is said once it has lasted for its ``grace``, then after 2 s, 4 s, ... up to 60 s.
    Beyond 20 subjects at a time, the others are counted and not named.
    """

    def __init__(self, client_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client_id = client_id
        self._clock = clock
        self._troubles: dict[str, _Trouble] = {}
        self._more_at = 0.0

    def __bool__(self) -> bool:
        """Whether something is waited for."""
        return bool(self._troubles)

    def met(self, subject: str, reason: object, *, grace: float = 0.0) -> None:
        """Note that ``subject``, such as a broker or a topic, cannot be used now.

        grace: seconds for which the trouble is usual, and not said.
        """
        now = self._clock()
        trouble = self._troubles.get(subject)
        if trouble is None or now - trouble.last > _FORGET_AFTER_S:
            self._forget_old(now)
            trouble = self._troubles[subject] = _Trouble(now)
        trouble.last = now
        if now - trouble.since < grace or (trouble.is_said and now < trouble.next_at):
            return
        if not trouble.is_said and self._has_said_enough(now):
            return
        so_far = f" ({now - trouble.since:.0f} s so far)" if trouble.is_said else ""
        why = str(reason).removeprefix(f"{subject}: ")
        _log.warning("%s waits for %s: %s; trying again%s", self._client_id, subject, why, so_far)
        trouble.is_said = True
        trouble.next_at = now + trouble.interval
        trouble.interval = min(2 * trouble.interval, _LONGEST_INTERVAL_S)

    def solved(self, subject: str) -> None:
        """Note that ``subject`` can be used again."""
        trouble = self._troubles.pop(subject, None)
        if trouble is not None and trouble.is_said:
            lasted = self._clock() - trouble.since
            _log.info("%s has %s again after %.0f s", self._client_id, subject, lasted)

    def said(self) -> list[str]:
        """The subjects that are waited for, and were named in the log."""
        return [subject for subject, trouble in self._troubles.items() if trouble.is_said]

    def drop(self, subject: str) -> None:
        """Stop watching ``subject``: it is given up, and the error raised."""
        self._troubles.pop(subject, None)

    def _has_said_enough(self, now: float) -> bool:
        """Whether no more subjects are named; says how many there are instead."""
        said = sum(trouble.is_said for trouble in self._troubles.values())
        if said < _MOST_SAID:
            return False
        if now >= self._more_at:
            more = len(self._troubles) - said
            _log.warning("%s waits for %d more, which are not named", self._client_id, more)
            self._more_at = now + _LONGEST_INTERVAL_S
        return True

    def _forget_old(self, now: float) -> None:
        self._troubles = {
            subject: trouble
            for subject, trouble in self._troubles.items()
            if now - trouble.last <= _FORGET_AFTER_S
        }
