"""Which topics of two IDCs hold the same records at the same offsets. Pure.

A topic and all its copies are one, wherever they are: what A's ``orders`` is at A, ``A.orders`` is
at B and at C. So a group may move from any of them to any other.
"""

from collections.abc import Iterable

from ..provenance import Provenance
from ..routes import Topic


def counterparts(
    source_idc: str, source: Iterable[Topic], target_idc: str, target: Iterable[Topic]
) -> dict[str, str]:
    """The names at the target, by those at the source, of the topics that both have."""
    there = {_identity(target_idc, topic): topic.name for topic in target}
    here = {topic.name: _identity(source_idc, topic) for topic in source if not topic.is_internal}
    return {name: there[identity] for name, identity in here.items() if identity in there}


def _identity(idc: str, topic: Topic) -> tuple[str, str]:
    """Its name elsewhere, and the id that it has where it is written."""
    known = Provenance.of(topic.config)
    if known is not None:
        return topic.name, known.topic_id
    return f"{idc}.{topic.name}", str(topic.topic_id) if topic.topic_id.int else ""
