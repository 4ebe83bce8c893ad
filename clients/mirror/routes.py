"""Which topics a link mirrors, under which name, and which it must not touch. Pure.

``orders``, written at A, is ``A.orders`` wherever it is mirrored. A link from S to T takes S's own
topics, and on to T those that S mirrors from elsewhere; but never one whose records have been at T.
So no record ever comes back to where it was, whatever the links look like, and none is copied for
ever. Where several links could write one topic at T, the one whose path the topic's configuration
names does; only one with a shorter path takes it over.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from qbus.names import is_topic_name

from .config import LinkConfig
from .provenance import Provenance
from .status import Trouble


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as a cluster has it; ``config`` is what was set for it alone.

    ``replicas`` is how many its partitions have.
    """

    name: str
    topic_id: UUID
    partitions: int
    config: Mapping[str, str]
    is_internal: bool = False
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Way:
    """A topic that is to be mirrored: its name at the source, and what it is at the target.

    ``partitions`` is how many it has at the source.
    """

    topic: str
    target_topic: str
    partitions: int
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a topic is not mirrored though it should be: a person has to see to it."""

    way: Way
    reason: str
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a link has to do: each way is in one of the lists at most.

    Those to ``create`` do not exist at the target, those to ``take_over`` are written by a longer
    way, those to ``mirror`` are this link's. Topics that another link brings are in none.
    """

    create: tuple[Way, ...]
    take_over: tuple[Way, ...]
    mirror: tuple[Way, ...]
    obstacles: tuple[Obstacle, ...]


def way(config: LinkConfig, topic: Topic) -> Way | None:
    """How the link mirrors a topic of its source; None: it does not."""
    if topic.is_internal or topic.name not in config.selection:
        return None
    known = Provenance.of(topic.config)
    if known is None:
        own = Provenance(config.source, _id(topic.topic_id), (config.source,))
        name = f"{config.source}.{topic.name}"
        return Way(topic.name, name, topic.partitions, own)
    places = {known.source, *known.path}
    if not config.relay or config.target in places or config.source in places:
        return None
    return Way(topic.name, topic.name, topic.partitions, known.through(config.source))


def plan(config: LinkConfig, source: Mapping[str, Topic], target: Mapping[str, Topic]) -> Plan:
    """What to do about the topics of the source, given those that the target has; by their names.

    ``source`` holds all that the configuration selects.
    """
    create: list[Way] = []
    take_over: list[Way] = []
    mirror: list[Way] = []
    obstacles: list[Obstacle] = []
    for found in _without_namesakes(way(config, topic) for topic in source.values()):
        existing = target.get(found.target_topic)
        if not is_topic_name(found.target_topic):
            obstacles.append(Obstacle(found, f"{found.target_topic!r} is no name for a topic"))
        elif existing is None:
            create.append(found)
        elif obstacle := _obstacle(found, existing):
            obstacles.append(obstacle)
        elif Provenance.of(existing.config) == found.provenance:
            mirror.append(found)
        elif _is_shorter(found, existing):
            take_over.append(found)
    obstacles += _orphans(config, source, target)
    return Plan(tuple(create), tuple(take_over), tuple(mirror), tuple(obstacles))


def _without_namesakes(ways: Iterable[Way | None]) -> list[Way]:
    """One way for each topic at the target: that of the source's own topic before a relayed one."""
    chosen: dict[str, Way] = {}
    for found in ways:
        if found is None:
            continue
        other = chosen.get(found.target_topic)
        if other is None or len(found.provenance.path) < len(other.provenance.path):
            chosen[found.target_topic] = found
    return [chosen[name] for name in sorted(chosen)]


def _obstacle(found: Way, existing: Topic) -> Obstacle | None:
    """Why a topic that the target has is not the one that should be there."""
    name = found.target_topic
    known = Provenance.of(existing.config)
    if known is None:
        reason = f"the target's {name} is a topic of its own, and no mirror"
        return Obstacle(found, reason, Trouble.UNRELATED_TOPIC)
    if known.source != found.provenance.source:
        reason = f"the target's {name} mirrors a topic of {known.source}"
        return Obstacle(found, reason, Trouble.UNRELATED_TOPIC)
    if known.topic_id != found.provenance.topic_id:
        reason = (
            f"the source's {found.topic} is not the topic that {name} is a copy of: it was deleted"
            " and created again. Delete the copy to have it mirrored anew"
        )
        return Obstacle(found, reason, Trouble.SOURCE_RECREATED)
    if existing.partitions > found.partitions and known.path == found.provenance.path:
        reason = (
            f"the target's {name} has {existing.partitions} partitions, its source"
            f" {found.partitions}"
        )
        return Obstacle(found, reason, Trouble.UNRELATED_TOPIC)
    return None


def _orphans(
    config: LinkConfig, source: Mapping[str, Topic], target: Mapping[str, Topic]
) -> Iterable[Obstacle]:
    """The target's topics that are this link's, and whose source is gone: they are kept."""
    for existing in target.values():
        known = Provenance.of(existing.config)
        if known is None or known.path[-1] != config.source:
            continue
        is_relayed = len(known.path) > 1
        name = existing.name if is_relayed else existing.name.removeprefix(f"{config.source}.")
        if name in source or name not in config.selection:
            continue
        orphan = Way(name, existing.name, existing.partitions, known)
        reason = f"{config.source} has no topic {name} any more; the copy is kept"
        yield Obstacle(orphan, reason, Trouble.SOURCE_DELETED)


def _is_shorter(found: Way, existing: Topic) -> bool:
    known = Provenance.of(existing.config)
    return known is not None and len(found.provenance.path) < len(known.path)


def _id(topic_id: UUID) -> str:
    return str(topic_id) if topic_id.int else ""
