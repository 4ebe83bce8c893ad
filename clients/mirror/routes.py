"""Which topics a link mirrors, under which name, and which it must not touch. Pure.

``orders``, written at A, is ``A.orders`` wherever it is mirrored. A link from S to T mirrors
S's own topics, and relays those that S mirrors from elsewhere, but never one whose records have
been at T. So no record ever returns to where it was, whatever the links look like. If several
links could write one topic at T, the one does whose path is in the topic's configuration; only a
link with a shorter path takes it over.
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
    """A topic of a cluster. ``config`` is what was set for it alone.

    ``replicas`` is the replication factor.
    """

    name: str
    topic_id: UUID
    partitions: int
    config: Mapping[str, str]
    is_internal: bool = False
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic to mirror: its names at the source and at the target, and its provenance there.

    ``partitions`` is their number at the source.
    """

    topic: str
    target_topic: str
    partitions: int
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a topic that should be mirrored is not: a person has to decide."""

    route: TopicRoute
    reason: str
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a link has to do; a route is in one of the lists at most.

    Topics to ``create`` do not exist at the target, those to ``take_over`` are written over a
    longer path, those to ``mirror`` are this link's. Topics that another link mirrors are in none.
    """

    create: tuple[TopicRoute, ...]
    take_over: tuple[TopicRoute, ...]
    mirror: tuple[TopicRoute, ...]
    obstacles: tuple[Obstacle, ...]


def route_of(config: LinkConfig, topic: Topic) -> TopicRoute | None:
    """Return the route of a topic of the source; None: the link does not mirror it."""
    if topic.is_internal or topic.name not in config.selection:
        return None
    known = Provenance.of(topic.config)
    if known is None:
        own = Provenance(config.source, _id(topic.topic_id), (config.source,))
        name = f"{config.source}.{topic.name}"
        return TopicRoute(topic.name, name, topic.partitions, own)
    places = {known.source, *known.path}
    if not config.relay or config.target in places or config.source in places:
        return None
    return TopicRoute(topic.name, topic.name, topic.partitions, known.through(config.source))


def plan(config: LinkConfig, source: Mapping[str, Topic], target: Mapping[str, Topic]) -> Plan:
    """Plan what to do about the topics of the source, given those of the target, by their names.

    ``source`` holds all topics that the configuration selects.
    """
    create: list[TopicRoute] = []
    take_over: list[TopicRoute] = []
    mirror: list[TopicRoute] = []
    obstacles: list[Obstacle] = []
    for route in _without_namesakes(route_of(config, topic) for topic in source.values()):
        existing = target.get(route.target_topic)
        if not is_topic_name(route.target_topic):
            obstacles.append(Obstacle(route, f"{route.target_topic!r} is not a topic name"))
        elif existing is None:
            create.append(route)
        elif obstacle := _obstacle(route, existing):
            obstacles.append(obstacle)
        elif Provenance.of(existing.config) == route.provenance:
            mirror.append(route)
        elif _is_shorter(route, existing):
            take_over.append(route)
    obstacles += _orphans(config, source, target)
    return Plan(tuple(create), tuple(take_over), tuple(mirror), tuple(obstacles))


def _without_namesakes(routes: Iterable[TopicRoute | None]) -> list[TopicRoute]:
    """Return one route for each topic at the target: that of the source's own topic if any."""
    chosen: dict[str, TopicRoute] = {}
    for route in routes:
        if route is None:
            continue
        other = chosen.get(route.target_topic)
        if other is None or len(route.provenance.path) < len(other.provenance.path):
            chosen[route.target_topic] = route
    return [chosen[name] for name in sorted(chosen)]


def _obstacle(route: TopicRoute, existing: Topic) -> Obstacle | None:
    """Return why a topic of the target is not the expected mirror; None: it is."""
    name = route.target_topic
    known = Provenance.of(existing.config)
    if known is None:
        reason = f"the target's {name} is a topic of its own, and no mirror"
        return Obstacle(route, reason, Trouble.UNRELATED_TOPIC)
    if known.source != route.provenance.source:
        reason = f"the target's {name} mirrors a topic of {known.source}"
        return Obstacle(route, reason, Trouble.UNRELATED_TOPIC)
    if known.topic_id != route.provenance.topic_id:
        reason = (
            f"the source's {route.topic} is not the topic that {name} is a copy of: it was deleted"
            " and created again. Delete the copy to mirror it again"
        )
        return Obstacle(route, reason, Trouble.SOURCE_RECREATED)
    if existing.partitions > route.partitions and known.path == route.provenance.path:
        reason = (
            f"the target's {name} has {existing.partitions} partitions, its source"
            f" {route.partitions}"
        )
        return Obstacle(route, reason, Trouble.UNRELATED_TOPIC)
    return None


def _orphans(
    config: LinkConfig, source: Mapping[str, Topic], target: Mapping[str, Topic]
) -> Iterable[Obstacle]:
    """Return the obstacles of this link's topics whose source is gone: they are kept."""
    for existing in target.values():
        known = Provenance.of(existing.config)
        if known is None or known.path[-1] != config.source:
            continue
        is_relayed = len(known.path) > 1
        name = existing.name if is_relayed else existing.name.removeprefix(f"{config.source}.")
        if name in source or name not in config.selection:
            continue
        orphan = TopicRoute(name, existing.name, existing.partitions, known)
        reason = f"{config.source} has no topic {name} any more; the copy is kept"
        yield Obstacle(orphan, reason, Trouble.SOURCE_DELETED)


def _is_shorter(route: TopicRoute, existing: Topic) -> bool:
    known = Provenance.of(existing.config)
    return known is not None and len(route.provenance.path) < len(known.path)


def _id(topic_id: UUID) -> str:
    return str(topic_id) if topic_id.int else ""
