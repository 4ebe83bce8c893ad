"""A topic in all datacenters: the local topic, and the mirrors of the others."""

from collections.abc import Iterable
from dataclasses import dataclass

from qbus.errors import ConfigError
from qbus.names import check_topic_name


@dataclass(frozen=True, slots=True)
class Everywhere:
    """What :func:`everywhere` returns; for :meth:`Consumer.subscribe`."""

    topics: frozenset[str]

    def origin(self, name: str) -> str | None:
        """Return the datacenter that a topic of this name may mirror; "": it is local; None: not
        wanted.
        """
        if name in self.topics:
            return ""
        idc, dot, topic = name.partition(".")
        return idc if dot and idc and topic in self.topics else None


def everywhere(*topics: str) -> Everywhere:
    """Return ``topics`` of all datacenters: each topic itself, and its mirrors.

    ``everywhere("orders")`` stands for ``orders`` and every ``<idc>.orders`` that is, or was before
    a takeover, a mirror of that datacenter's topic; other topics with such names do not count.
    Where the cluster cannot tell (Apache Kafka), the name decides. Raises
    :class:`~qbus.errors.ConfigError` without topics, and ApiError INVALID_TOPIC_EXCEPTION for an
    invalid name.
    """
    if not topics:
        raise ConfigError("no topic is named")
    _check(topics)
    return Everywhere(frozenset(topics))


def _check(topics: Iterable[str]) -> None:
    for topic in topics:
        check_topic_name(topic)
