"""The partitions that a query reads: the options assign, subscribe and subscribePattern."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...types import TopicDescription, TopicPartition
from ..options import OptionError, Options

SUBSCRIPTION_OPTIONS = ("assign", "subscribe", "subscribePattern")

_LABEL = 60
"""The most characters of a topic's name in a label."""


@dataclass(frozen=True)
class Subscription:
    """Topics by name (``names``) or by ``pattern``, and of those ``partitions``, or all (None)."""

    names: tuple[str, ...] | None
    pattern: str | None = None
    partitions: frozenset[TopicPartition] | None = None

    @classmethod
    def of(cls, options: Options) -> "Subscription":
        """Read the options; raises :class:`~qbus.clients.spark.options.OptionError`."""
        chosen = options.among(SUBSCRIPTION_OPTIONS)
        if not chosen:
            raise OptionError("subscribe", None, "name the topics, or use subscribePattern, assign")
        if len(chosen) > 1:
            raise OptionError(
                chosen[1], options.text(chosen[1]), f"{chosen[0]} is given too: use one"
            )
        name = chosen[0]
        value = options.required(name, "it must not be empty")
        if name == "assign":
            partitions = _parse_assign(value)
            return cls(tuple(sorted({where.topic for where in partitions})), partitions=partitions)
        if name == "subscribe":
            names = {topic.strip() for topic in value.split(",")} - {""}
            if not names:
                raise OptionError(name, value, "give the names of topics, separated by commas")
            return cls(tuple(sorted(names)))
        try:
            re.compile(value)
        except re.error as error:
            raise OptionError(name, value, f"not a regular expression: {error}") from None
        return cls(None, pattern=value)

    @property
    def label(self) -> str:
        """A short name of what is read, for people: ``orders``, ``orders-and-2``, ``pattern``."""
        if self.names is None:
            return "pattern"
        first, *others = self.names
        return f"{first[:_LABEL]}-and-{len(others)}" if others else first[:_LABEL]

    def select(self, topics: Iterable[TopicDescription]) -> list[TopicPartition]:
        """The partitions to read among ``topics``; a pattern must match the whole name."""
        return sorted(
            partition
            for topic in topics
            if self.wants(topic.name) and (self.names is not None or not topic.is_internal)
            for partition in (TopicPartition(topic.name, part.index) for part in topic.partitions)
            if self.partitions is None or partition in self.partitions
        )

    def wants(self, name: str) -> bool:
        """Whether the query reads the topic ``name``."""
        if self.names is not None:
            return name in self.names
        assert self.pattern is not None
        return re.fullmatch(self.pattern, name) is not None


def _parse_assign(value: str) -> frozenset[TopicPartition]:
    remedy = 'give partitions as {"topic": [0, 1], ...}'
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise OptionError("assign", value, f"not JSON ({error}): {remedy}") from None
    if not isinstance(parsed, Mapping) or not all(map(_is_indexes, parsed.values())):
        raise OptionError("assign", value, remedy)
    found = frozenset(
        TopicPartition(topic, index) for topic, indexes in parsed.items() for index in indexes
    )
    if not found:
        raise OptionError("assign", value, remedy)
    return found


def _is_indexes(value: object) -> bool:
    return isinstance(value, list) and all(type(index) is int and index >= 0 for index in value)
