"""Names by regular expressions that they match as a whole, less those that are left out. Pure."""

import re
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Selection:
    """What ``include`` matches and ``exclude`` does not; a plain name matches itself."""

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()

    def __contains__(self, name: object) -> bool:
        return (
            isinstance(name, str)
            and any(pattern.fullmatch(name) for pattern in self._included)
            and not any(pattern.fullmatch(name) for pattern in self._excluded)
        )

    @cached_property
    def _included(self) -> list[re.Pattern[str]]:
        return [re.compile(pattern) for pattern in self.include]

    @cached_property
    def _excluded(self) -> list[re.Pattern[str]]:
        return [re.compile(pattern) for pattern in self.exclude]
