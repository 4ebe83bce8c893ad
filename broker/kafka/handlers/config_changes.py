"""What the two requests that alter configurations have in common."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from qbus.config import BrokerConfig, Settings, TopicConfig
from qbus.errors import ApiError, ErrorCode

from ...controller import ConfigChange, with_mirror_source
from .config_resources import ResourceType, broker_name, resource_type

if TYPE_CHECKING:
    from ...broker import Broker

Edited = Callable[[type[Settings], Mapping[str, str]], dict[str, str]]


class Change(NamedTuple):
    """One resource's change: given its keys and what is set now, ``edited`` makes what will be."""

    type: int
    name: str
    edited: Edited


async def alter(
    broker: "Broker", changes: Sequence[Change], *, validate_only: bool
) -> list[ApiError | None]:
    """Make each change for itself; of each why it was refused, if it was."""
    errors: list[ApiError | None] = [None] * len(changes)
    topics: dict[int, ConfigChange] = {}
    brokers: dict[int, ConfigChange] = {}
    times = Counter((change.type, change.name) for change in changes)
    for place, change in enumerate(changes):
        try:
            if times[change.type, change.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the resource comes twice")
            if resource_type(change.type) is ResourceType.TOPIC:
                topics[place] = ConfigChange(change.name, partial(_edited_topic, change.edited))
            else:
                name = broker_name(broker, change.name)
                brokers[place] = ConfigChange(name, partial(change.edited, BrokerConfig))
        except ApiError as error:
            errors[place] = error
    for alter_some, some in (
        (broker.controller.alter_topic_configs, topics),
        (broker.controller.alter_broker_configs, brokers),
    ):
        outcomes = await alter_some(list(some.values()), validate_only=validate_only)
        for place, outcome in zip(some, outcomes, strict=True):
            errors[place] = outcome
    return errors


def _edited_topic(edited: Edited, current: Mapping[str, str]) -> dict[str, str]:
    return with_mirror_source(current, edited(TopicConfig, current))
