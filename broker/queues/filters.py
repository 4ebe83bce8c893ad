"""Which records a share group takes: by the tags in their header ``qbus-tags``.

The header's value is names, separated by commas: ``red,large``. An expression is ``any:a,b`` (one
of these tags at least), ``all:a,b`` (every one of them) or ``none:a,b`` (not one of them). Spaces
around names do not count. A record without the header has no tags.
"""

from typing import Final, NamedTuple

from qbus.records.record import Headers

TAGS: Final = "qbus-tags"

_KINDS: Final = ("any", "all", "none")


class TagFilter(NamedTuple):
    """An expression over tags."""

    kind: str
    tags: frozenset[str]

    def matches(self, headers: Headers) -> bool:
        """Whether a record with these headers is taken."""
        tags = tags_of(headers)
        if self.kind == "any":
            return not self.tags.isdisjoint(tags)
        if self.kind == "all":
            return self.tags <= tags
        return self.tags.isdisjoint(tags)


def parse_filter(expression: str) -> TagFilter | None:
    """What an expression means; None: it is empty, and all records are taken. Raises ValueError."""
    if not expression.strip():
        return None
    kind, colon, names = expression.partition(":")
    tags = frozenset(name.strip() for name in names.split(","))
    if not colon or kind.strip() not in _KINDS or "" in tags:
        raise ValueError(f"{expression!r} is no filter: any:a,b or all:a,b or none:a,b")
    return TagFilter(kind.strip(), tags)


def tags_of(headers: Headers) -> frozenset[str]:
    """The tags of a record with these headers."""
    for name, value in headers:
        if name == TAGS and value is not None:
            text = value.decode("utf-8", "replace")
            return frozenset(tag.strip() for tag in text.split(",") if tag.strip())
    return frozenset()
