"""What a check found, to be read by whoever has to find out why."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """Ways in which a history contradicts a correct log."""

    LOST = "lost"
    """Acknowledged or read before, and not there any more."""
    UNSEEN = "unseen"
    """Acknowledged, and never read, though nothing says that it is gone."""
    DUPLICATED = "duplicated"
    """One record of an idempotent producer at two offsets."""
    REORDERED = "reordered"
    """Stored before a record that came before it."""
    PHANTOM = "phantom"
    """Read, though never sent, not sent yet, sent elsewhere, or refused for good."""
    INCONSISTENT = "inconsistent"
    """Two who disagree on what is at an offset."""
    NON_MONOTONIC = "non-monotonic"
    """A consumer that was handed an offset again, or an earlier one."""
    GAP = "gap"
    """A consumer that was handed an offset which is not the next."""


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
