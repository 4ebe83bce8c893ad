"""How requests that change many things are told in the broker's log."""

import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

_MOST: Final = 100
"""Things that a line names. A line for each takes longer than to change them, and one of all the
100,000 that a request may name is megabytes long."""


class ChangedTopic(NamedTuple):
    """A topic that a request changed: what the log tells of it alone, and beside others."""

    alone: str
    beside_others: str


def tell_topics(
    log: logging.Logger, topics: Sequence[ChangedTopic], became: str, sender: str
) -> None:
    """Tell the operator which topics were changed, and who did; ``became`` is said of several."""
    for some in in_lines(topics):
        if len(some) == 1:
            log.info("topic %s by %s", some[0].alone, sender)
        else:
            names = ", ".join(topic.beside_others for topic in some)
            log.info("%d topics %s by %s: %s", len(some), became, sender, names)


def in_lines(changed: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield what each line tells of."""
    for start in range(0, len(changed), _MOST):
        yield changed[start : start + _MOST]
