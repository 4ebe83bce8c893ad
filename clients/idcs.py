"""Topics of several IDCs: the one of this IDC, and the mirror of each other one's."""

from collections.abc import Iterable
from dataclasses import dataclass

from qbus.errors import ConfigError
from qbus.names import check_topic_name


@dataclass(frozen=True, slots=True)
class Everywhere:
    """What :func:`everywhere` made; for :meth:`Consumer.subscribe`."""

    topics: frozenset[str]

    def origin(self, name: str) -> str | None:
        """The IDC whose topic the one with this name may mirror; "" for one of ours, else None."""
        if name in self.topics:
            return ""
        idc, dot, topic = name.partition(".")
        return idc if dot and idc and topic in self.topics else None


def everywhere(*topics: str) -> Everywhere:
    """``topics`` of every IDC: each one itself, and all that mirror one of that name.

    ``everywhere("orders")`` stands for ``orders`` and every ``<idc>.orders`` that is, or was before
    it was taken over, a mirror of that IDC's topic; what is called so by chance does not count.
    Where the cluster cannot say (Apache Kafka), the name decides. Raises
    :class:`~qbus.errors.ConfigError` without topics, and ApiError INVALID_TOPIC_EXCEPTION for what
    is none.
    """
    if not topics:
        raise ConfigError("no topic is named")
    _check(topics)
    return Everywhere(frozenset(topics))


def _check(topics: Iterable[str]) -> None:
    for topic in topics:
        check_topic_name(topic)
