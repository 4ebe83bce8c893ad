"""The report of a check."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The kinds of contradictions between a history and a correct log."""

    LOST = "lost"
    """Acknowledged or read before, and gone."""
    UNSEEN = "unseen"
    """Acknowledged and never read; it may still be there."""
    DUPLICATED = "duplicated"
    """One record of an idempotent producer at two offsets."""
    REORDERED = "reordered"
    """Stored before a record that precedes it."""
    PHANTOM = "phantom"
    """Read, but never sent, not sent yet, sent to another partition, or refused for good."""
    INCONSISTENT = "inconsistent"
    """Different values at the same offset."""
    NON_MONOTONIC = "non-monotonic"
    """A consumer returned an offset again, or an earlier one."""
    GAP = "gap"
    """A consumer skipped an offset."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction, in one partition."""

    kind: Kind
    partition: int
    what: str

    def __str__(self) -> str:
        return f"{self.kind.value}, partition {self.partition}: {self.what}"


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, and how much was looked at."""

    findings: Sequence[Finding]
    summary: str
    shown: int = 5
    """How many findings of each kind and partition are printed."""

    @property
    def kinds(self) -> set[Kind]:
        """The kinds of contradictions that were found."""
        return {finding.kind for finding in self.findings}

    def __str__(self) -> str:
        totals = Counter((finding.kind, finding.partition) for finding in self.findings)
        lines = [self.summary]
        for (kind, partition), total in sorted(totals.items(), key=lambda item: item[0][1]):
            these = [f for f in self.findings if (f.kind, f.partition) == (kind, partition)]
            lines += [f"  {finding}" for finding in these[: self.shown]]
            if total > self.shown:
                lines.append(f"  {kind.value}, partition {partition}: {total} in all")
        return "\n".join(lines)
