"""Which topics and partitions a command reads."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Self

import click

from qbus.names import check_topic_name

#: Marks a pattern among names of topics, as in librdkafka's subscriptions.
_PATTERN_MARK = "^"


@dataclass(frozen=True, slots=True)
class Selection:
    """Topics by name, topics by pattern, or some partitions of one topic."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    partitions: tuple[int, ...] = ()
    described: str = ""

    @classmethod
    def parse(cls, topics: Sequence[str], partitions: Collection[int] = ()) -> Self:
        """Read names, and patterns that begin with ``^``; all partitions unless some are named.

        A pattern is found at the start of a name: ``^web`` takes ``web-1`` as well. Raises
        `click.UsageError` for a pattern that is none, and for partitions of several topics, and
        `ApiError` for what cannot be the name of a topic.
        """
        names = tuple(dict.fromkeys(t for t in topics if not t.startswith(_PATTERN_MARK)))
        for name in names:
            check_topic_name(name)
        patterns = [t for t in topics if t.startswith(_PATTERN_MARK)]
        if partitions and (patterns or len(names) > 1):
            raise click.UsageError("--partition is for one topic that is named.")
        alternatives = []
        for text in patterns:
            try:
                re.compile(text)
            except re.error as error:
                raise click.UsageError(f"{text!r} is not a pattern: {error}.") from None
            alternatives.append(f"(?:{text}).*")
        if not alternatives:
            return cls(names, None, tuple(sorted(set(partitions))), " ".join(topics))
        pattern = re.compile("|".join([*alternatives, *map(re.escape, names)]))
        return cls(names, pattern, described=" ".join(topics))

    def matching(self, existing: Collection[str]) -> list[str]:
        """The named topics, and those of ``existing`` that the pattern matches."""
        if self.pattern is None:
            return list(self.names)
        matched = (name for name in existing if self.pattern.fullmatch(name))
        return sorted({*self.names, *matched})

    def __str__(self) -> str:
        return self.described
