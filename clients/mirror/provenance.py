"""The provenance of a mirrored topic, which its configuration states. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

SOURCE = "qbus.mirror.source"
TOPIC_ID = "qbus.mirror.topic.id"
PATH = "qbus.mirror.path"
PREFIX = "qbus.mirror."
"""The prefix of the keys of mirrors; none of them is copied from a topic to its mirror."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a topic's records are written, and the path they take from there.

    ``source`` is the datacenter where they are written, ``topic_id`` the topic's id there ("" if it
    has none), ``path`` every datacenter on the way, ``source`` first. The mirror reads at the last
    one: topics with different paths are written by different links.
    """

    source: str
    topic_id: str
    path: tuple[str, ...]

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Self | None:
        """Return the provenance in a topic's configuration; None: the topic is no mirror."""
        source = config.get(SOURCE, "")
        if not source:
            return None
        listed = config.get(PATH, "")
        path = tuple(idc.strip() for idc in listed.split(",") if idc.strip())
        return cls(source, config.get(TOPIC_ID, ""), path or (source,))

    def config(self) -> dict[str, str]:
        """Return the configuration that states it."""
        return {SOURCE: self.source, TOPIC_ID: self.topic_id, PATH: ",".join(self.path)}

    def through(self, idc: str) -> "Provenance":
        """Return the provenance of a copy that is read at the datacenter ``idc``."""
        return Provenance(self.source, self.topic_id, (*self.path, idc))
