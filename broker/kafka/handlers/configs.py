"""What configuration requests are about: topics, brokers and share groups."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from qbus.config import BrokerConfig, Settings, ShareGroupConfig, TopicConfig
from qbus.config.without_effect import warnings_without_effect
from qbus.errors import ApiError, ErrorCode
from qbus.metadata.znodes import ALL_BROKERS

from ...authorization import CLUSTER, Operation
from ...authorization import group as group_resource
from ...authorization import topic as topic_resource
from ...controller import ConfigChange, with_compacted, with_idle_time, with_mirror_source
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_log = logging.getLogger(__name__)

_DEAD_LETTERS: Final = ("errors.deadletterqueue.topic.name", "qbus.delay.dead.letter.topic")
"""The keys of groups and topics that name where dead letters go."""


class ResourceType(IntEnum):
    """Kinds of things that have a configuration, by Kafka's numbers (``ConfigResource.Type``)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def resource_type(number: int) -> ResourceType:
    """The type of a resource, if its configuration can be told and changed.

    Raises:
        ApiError: INVALID_REQUEST, it cannot.
    """
    if number in {ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP}:
        return ResourceType(number)
    known = number in ResourceType.__members__.values()
    name = ResourceType(number).name if known else f"type {number}"
    raise ApiError(
        ErrorCode.INVALID_REQUEST,
        f"configuration is that of topics, brokers or share groups; {name} is not supported",
    )


def broker_name(broker: "Broker", name: str) -> str:
    """Whom a broker resource stands for: this broker's id, or ALL_BROKERS.

    Raises:
        ApiError: INVALID_REQUEST, another broker, or none.
    """
    if not name:
        return ALL_BROKERS
    if name != str(broker.node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {broker.node_id}: ask broker {name!r} itself, or for all with ''",
        )
    return name


Edited = Callable[[type[Settings], Mapping[str, str]], dict[str, str]]


class Change(NamedTuple):
    """One resource's change: given its keys and what is set now, ``edited`` makes what will be.

    without_effect: sentences about changed settings that have no effect.
    """

    type: int
    name: str
    edited: Edited
    without_effect: Sequence[str] = ()


def warnings_of(type_: int, set_names: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each of a resource's new settings that has no effect."""
    return tuple(warnings_without_effect(set_names)) if type_ == ResourceType.BROKER else ()


async def alter(
    broker: "Broker", context: RequestContext, changes: Sequence[Change], *, validate_only: bool
) -> list[ApiError | None]:
    """Make each change for itself; of each why it was refused, if it was."""
    errors: list[ApiError | None] = [None] * len(changes)
    topics: dict[int, ConfigChange] = {}
    brokers: dict[int, ConfigChange] = {}
    groups: dict[int, ConfigChange] = {}
    times = Counter((change.type, change.name) for change in changes)
    for place, change in enumerate(changes):
        try:
            if times[change.type, change.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the resource comes twice")
            kind = resource_type(change.type)
            if kind is ResourceType.TOPIC:
                context.authorize(Operation.ALTER_CONFIGS, topic_resource(change.name))
                edited = partial(_edited_topic, change.edited)
                topics[place] = ConfigChange(change.name, _checked(context, edited))
            elif kind is ResourceType.GROUP:
                context.authorize(Operation.ALTER_CONFIGS, group_resource(change.name))
                edited = partial(change.edited, ShareGroupConfig)
                groups[place] = ConfigChange(change.name, _checked(context, edited))
            else:
                context.authorize(Operation.ALTER_CONFIGS, CLUSTER)
                name = broker_name(broker, change.name)
                brokers[place] = ConfigChange(name, partial(change.edited, BrokerConfig))
        except ApiError as error:
            errors[place] = error.with_traceback(None)  # whose frames hold this list
    for alter_some, some in (
        (broker.controller.alter_topic_configs, topics),
        (broker.controller.alter_broker_configs, brokers),
        (broker.controller.alter_group_configs, groups),
    ):
        outcomes = await alter_some(list(some.values()), validate_only=validate_only)
        for place, outcome in zip(some, outcomes, strict=True):
            errors[place] = outcome
            if outcome is None and not validate_only:
                context.changed("alter configuration", _named(changes[place]))
                _log.info(
                    "the configuration of %s is altered by %s",
                    _named(changes[place]),
                    context.sender,
                )
                for warning in changes[place].without_effect:
                    _log.warning("%s: %s (by %s)", _named(changes[place]), warning, context.sender)
    return errors


def _named(change: Change) -> str:
    if change.type == ResourceType.TOPIC:
        return f"topic {change.name}"
    if change.type == ResourceType.GROUP:
        return f"group {change.name!r}"
    return f"broker {change.name}" if change.name else "all brokers"


def check_dead_letters(
    context: RequestContext, config: Mapping[str, str | None], current: Mapping[str, str]
) -> None:
    """Check that the client may write where a configuration has the broker put dead letters.

    Whoever may alter a group or a topic could otherwise have the broker write to any other topic.

    Raises:
        ApiError: TOPIC_AUTHORIZATION_FAILED.
    """
    for key in _DEAD_LETTERS:
        name = config.get(key)
        if name and name != current.get(key):
            context.authorize(Operation.WRITE, topic_resource(name))


def _checked(
    context: RequestContext, edited: Callable[[Mapping[str, str]], dict[str, str]]
) -> Callable[[Mapping[str, str]], dict[str, str]]:
    """The same edit, if it sends dead letters nowhere that the client may not write to."""

    def edit(current: Mapping[str, str]) -> dict[str, str]:
        config = edited(current)
        check_dead_letters(context, config, current)
        return config

    return edit


def _edited_topic(edited: Edited, current: Mapping[str, str]) -> dict[str, str]:
    config = with_idle_time(current, edited(TopicConfig, current))
    return with_compacted(current, with_mirror_source(current, config))
