"""Several logs of one partition, found in different data directories when a broker starts.

A data directory that was offline may come back with the log of a topic that was deleted meanwhile,
and whose name a new topic has: the new one's log was begun in another directory. Each log's
``partition.metadata`` has the id of its topic. The log with the id that the topic has now counts.
What has another id is set aside: it is kept, in a directory whose name ends with ``-stray``, as
Kafka does with what it finds unexpectedly, since what takes it for outdated might be wrong. It is
removed only when its topic is known to be deleted.

Nothing is set aside where ids do not tell the logs apart: two of one topic, be it that somebody
copied one, or a log with records that does not say whose it is. Then the operator has to choose.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from qbus.errors import ConfigError

from .names import TopicPartition


class FoundLog(NamedTuple):
    """A partition's log in the data directory ``place``; ``topic_id`` None: it has no id."""

    place: str
    topic_id: bytes | None
    has_records: bool


def outdated(
    partition: TopicPartition, found: Sequence[FoundLog], topic_id: bytes | None
) -> list[FoundLog]:
    """Those of a partition's logs that are to be set aside.

    ``topic_id`` is that of the topic now, None if there is no topic of that name: then all are set
    aside, for nothing tells which one would count. None are where all have the same id: one may be
    on its way from one directory to the other (:mod:`.moving`).

    Raises:
        ConfigError: one has records and no id, the others have ids.
    """
    ids = {one.topic_id for one in found}
    if len(ids) < 2:
        return []
    for one in found:
        if one.topic_id is None and one.has_records:
            others = " and in ".join(other.place for other in found if other is not one)
            raise ConfigError(
                f"{partition} is in {one.place} and in {others}, and the one in {one.place} does"
                " not say to which topic it belongs: its partition.metadata is missing or damaged."
                f" Move {one.place}/{partition} to a place outside of the data directories, and"
                " start the broker again"
            )
    if len(ids - {None}) < 2:  # the others were about to be made when the broker crashed
        return [one for one in found if one.topic_id is None]
    return [one for one in found if one.topic_id is None or one.topic_id != topic_id]


def check_unique(places: Mapping[TopicPartition, Sequence[str]]) -> None:
    """Check that no log is in two data directories; they are given by partition.

    Raises:
        ConfigError: one is.
    """
    for partition, some in places.items():
        if len(some) > 1:
            raise ConfigError(
                f"{partition} is in {' and in '.join(some)}, and these are logs of the same topic."
                " One of them is a copy that the broker did not make. Move the one that is older or"
                " shorter to a place outside of the data directories, and start the broker again"
            )
