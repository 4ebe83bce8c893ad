"""Where a mirrored topic comes from, as its configuration says. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

SOURCE = "qbus.mirror.source"
TOPIC_ID = "qbus.mirror.topic.id"
PATH = "qbus.mirror.path"
PREFIX = "qbus.mirror."
"""What the keys of mirrors begin with; none of them is ever copied from a topic to its mirror."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Whose topic it is, and which way its records come.

    ``source`` is the IDC where they are written, ``topic_id`` the topic's id there ("" where it has
    none), ``path`` every IDC that they come through, ``source`` first. The last one is where the
    mirror reads: two topics with another ``path`` are written by two links.
    """

    source: str
    topic_id: str
    path: tuple[str, ...]

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Self | None:
        """That of a topic with this configuration; None: it is no mirror."""
        source = config.get(SOURCE, "")
        if not source:
            return None
        listed = config.get(PATH, "")
        path = tuple(idc.strip() for idc in listed.split(",") if idc.strip())
        return cls(source, config.get(TOPIC_ID, ""), path or (source,))

    def config(self) -> dict[str, str]:
        """The configuration that says so."""
        return {SOURCE: self.source, TOPIC_ID: self.topic_id, PATH: ",".join(self.path)}

    def through(self, idc: str) -> "Provenance":
        """That of a copy which is read at ``idc``."""
        return Provenance(self.source, self.topic_id, (*self.path, idc))
