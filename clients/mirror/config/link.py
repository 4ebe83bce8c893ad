"""A link: one source and the target, and all that holds between the two."""

# ruff: noqa: RUF009 - the defaults are values that never change

from dataclasses import dataclass
from functools import cached_property

from .config import Fallback, Groups, MirrorConfig, Topics, Transfer
from .selection import Selection


@dataclass(frozen=True)
class LinkConfig:
    """What a link is told.

    ``source`` and ``target`` are the names of IDCs. ``topics`` and ``exclude`` are regular
    expressions for names that topics have at the source; see :attr:`selection`.
    ``rate_limit_bytes`` is per second, 0 for none.
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

    @property
    def name(self) -> str:
        """What the link is called in logs, status and metrics."""
        return f"{self.source}->{self.target}"

    @property
    def group(self) -> str:
        """The consumer group at the target by which processes share out the link's partitions."""
        return f"qbus-mirror-{self.source}-{self.target}"

    @cached_property
    def selection(self) -> Selection:
        """The topics that are to be mirrored, as far as their names tell."""
        return Selection(self.topics, self.exclude)

    @cached_property
    def group_selection(self) -> Selection:
        """The groups whose offsets are carried over; never those of mirrors."""
        return Selection(self.groups.include, (*self.groups.exclude, "qbus-mirror-.*"))


def links(config: MirrorConfig) -> tuple[LinkConfig, ...]:
    """A link for each source."""
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
        )
        for source in config.sources
    )
