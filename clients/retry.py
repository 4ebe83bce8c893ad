"""When to try again."""

import random
from collections.abc import Iterator

_FIRST = 0.05
_FACTOR = 2.0
_LONGEST = 1.0
_JITTER = 0.2


def backoff() -> Iterator[float]:
    """Seconds to wait before each next attempt: doubling up to one, spread by a fifth."""
    delay = _FIRST
    while True:
        yield delay * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - not a secret
        delay = min(delay * _FACTOR, _LONGEST)
