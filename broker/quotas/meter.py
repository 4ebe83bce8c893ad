"""How much one entity uses of one quota. Pure: callers pass the time, in monotonic seconds.

A meter keeps one number: when everything that was used so far is paid for, at the quota's rate.
Where that lies ahead, the entity owes, and is throttled until then. Where it lies behind, the
entity may use at once what it did not use meanwhile, for at most ``burst_s`` seconds' worth. Who
owes nothing may use any amount, and owes it then. So over any time t an entity gets at most
``bound * (t + burst_s)`` and one request more.

Kafka averages over ``quota.window.num`` windows instead, which allows the same burst and asks for
the same delay, but forgets what is older. A debt is never forgotten here: else many connections,
each of which has one request taken before it is slowed down, would use more than their quota.
"""

import math

_NEVER = -math.inf


class Meter:
    """What one entity used of one quota: ``bound`` a second."""

    __slots__ = ("_before", "_burst_s", "_paid_at", "_since", "_used", "bound")

    def __init__(self, bound: float, burst_s: float) -> None:
        """``burst_s``: seconds' worth of the quota that may be used at once, after a rest."""
        self.bound = bound
        self._burst_s = burst_s
        self._paid_at = _NEVER
        # What was used in the period under way, which began at _since, and in the one before.
        self._used = 0.0
        self._before = 0.0
        self._since = _NEVER

    def owes_s(self, now: float) -> float:
        """How long the entity has to wait until what it used is paid for, in seconds."""
        owes = self._paid_at - now
        return max(0.0, owes)

    def credit(self, now: float) -> float:
        """How much may be used now without a delay."""
        saved_s = min(now - self._paid_at, self._burst_s)
        return saved_s * self.bound if saved_s > 0.0 else 0.0

    def charge(self, amount: float, now: float) -> float:
        """Use ``amount``, whether or not there is so much; return as :meth:`owes_s`."""
        paid_at = self._paid_at
        earliest = now - self._burst_s
        paid_at = max(paid_at, earliest)
        paid_at += amount / self.bound
        self._paid_at = paid_at
        if now - self._since >= self._burst_s:
            self._begin_period(now)
        self._used += amount
        owes = paid_at - now
        return max(0.0, owes)

    def refund(self, amount: float) -> None:
        """Take back a charge of ``amount``: it was not used after all."""
        self._paid_at -= amount / self.bound
        self._used = max(self._used - amount, 0.0)

    def limit_debt(self, longest_s: float, now: float) -> None:
        """Let go of what would take longer than ``longest_s`` to pay."""
        self._paid_at = min(self._paid_at, now + longest_s)

    def set_bound(self, bound: float, now: float) -> None:
        """Put another quota in force. What is owed stays owed, at the new rate."""
        if bound != self.bound:
            owes = self._paid_at - now
            if owes > 0.0:
                self._paid_at = now + owes * self.bound / bound
            self.bound = bound

    def is_rested(self, now: float) -> bool:
        """Whether it is as a new one: nothing is lost when it is let go."""
        return self._paid_at <= now - self._burst_s

    def rate(self, now: float) -> float:
        """How much is used a second, on the average of the last ``burst_s`` seconds or so."""
        elapsed = now - self._since
        if elapsed >= 2 * self._burst_s:
            return 0.0
        if elapsed >= self._burst_s:
            return self._used * (2 - elapsed / self._burst_s) / self._burst_s
        return (self._before * (1 - elapsed / self._burst_s) + self._used) / self._burst_s

    def _begin_period(self, now: float) -> None:
        elapsed = now - self._since
        self._before = self._used if elapsed < 2 * self._burst_s else 0.0
        self._used = 0.0
        self._since = self._since + self._burst_s if elapsed < 2 * self._burst_s else now
