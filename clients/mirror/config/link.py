"""A link: one source, the target, and what is copied between the two."""

# ruff: noqa: RUF009 - the defaults are values that never change

import re
from dataclasses import dataclass
from functools import cached_property

from qbus.security.table import SecurityTable

from .config import Fallback, Groups, MirrorConfig, Topics, Transfer


@dataclass(frozen=True)
class Selection:
    """Names that a pattern of ``include`` matches as a whole, and none of ``exclude``."""

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


@dataclass(frozen=True)
class LinkConfig:
    """The configuration of a link.

    ``source`` and ``target`` are the names of datacenters. ``topics`` and ``exclude`` are regular
    expressions for names that topics have at the source; see :attr:`selection`.
    ``rate_limit_bytes`` is per second, 0 for none. ``source_security`` and ``target_security`` say
    how the connections to each of the two are protected.
    """

    source: str
    target: str
    source_bootstrap: str
    target_bootstrap: str
    topics: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    relay: bool = True
    rate_limit_bytes: int = 0
    topics_at_target: Topics = Topics()
    transfer: Transfer = Transfer()
    groups: Groups = Groups()
    fallback: Fallback = Fallback()
    source_security: SecurityTable = SecurityTable()
    target_security: SecurityTable = SecurityTable()

    @property
    def name(self) -> str:
        """The link's name in logs, status and metrics."""
        return f"{self.source}->{self.target}"

    @property
    def group(self) -> str:
        """The consumer group at the target that divides the link's partitions among processes."""
        return f"qbus-mirror-{self.source}-{self.target}"

    @cached_property
    def selection(self) -> Selection:
        """The topics to mirror, by their names."""
        return Selection(self.topics, self.exclude)

    @cached_property
    def group_selection(self) -> Selection:
        """The groups whose offsets are synced; never those of mirrors."""
        return Selection(self.groups.include, (*self.groups.exclude, "qbus-mirror-.*"))


def links(config: MirrorConfig) -> tuple[LinkConfig, ...]:
    """Return a link for each source."""
    return tuple(
        LinkConfig(
            source=source.idc,
            target=config.target.idc,
            source_bootstrap=source.bootstrap,
            target_bootstrap=config.target.bootstrap,
            topics=source.topics or config.topics,
            exclude=(*config.exclude, *source.exclude),
            relay=source.relay,
            rate_limit_bytes=source.rate_limit_bytes,
            topics_at_target=config.topics_at_target,
            transfer=config.transfer,
            groups=config.groups,
            fallback=config.fallback,
            source_security=source.security,
            target_security=config.target.security,
        )
        for source in config.sources
    )
