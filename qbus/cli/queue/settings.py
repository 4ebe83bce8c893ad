"""The settings of a queue: those of its topic, and else those of the share group."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from qbus.cli.failures import Misuse
from qbus.delay import parse_duration

if TYPE_CHECKING:
    from qbus.cli.output import Document
    from qbus.clients import Admin

NO_LIMIT: Final = "none"
NEVER: Final = "never"
_IDLE: Final = "qbus.queue.idle.ms"

_KEYS: Final = {
    "delivery_limit": ("qbus.queue.delivery.limit", "share.delivery.count.limit"),
    "backoff_ms": ("qbus.queue.retry.backoff.ms", "qbus.retry.backoff.ms"),
    "backoff_max_ms": ("qbus.queue.retry.backoff.max.ms", "qbus.retry.backoff.max.ms"),
    "dead_letters": ("qbus.queue.dead.letter.topic", "errors.deadletterqueue.topic.name"),
}
"""Setting -> the topic's key, and the group's, which holds where the topic has none."""
_INHERITS: Final = frozenset({"", "-1"})


def changes_of(
    topic: str,
    *,
    delivery_limit: str | None = None,
    backoff: str | None = None,
    backoff_max: str | None = None,
    dead_letters: str | None = None,
    idle: str | None = None,
) -> dict[str, str]:
    """The topic's configuration for what is named. Raises Misuse."""
    if dead_letters == topic:
        raise Misuse("a queue cannot be its own dead letter topic")
    values = {
        "delivery_limit": "0" if delivery_limit == NO_LIMIT else delivery_limit,
        "backoff_ms": None if backoff is None else str(parse_duration(backoff)),
        "backoff_max_ms": None if backoff_max is None else str(parse_duration(backoff_max)),
        "dead_letters": dead_letters,
    }
    changes = {_KEYS[name][0]: value for name, value in values.items() if value is not None}
    if idle is not None:
        changes[_IDLE] = "-1" if idle == NEVER else str(parse_duration(idle))
    return changes


async def read_settings(admin: "Admin", topic: str, group: str) -> "Document":
    """The settings in force for ``group``, and where each comes from: the queue, or the group."""
    from qbus.clients.types import ConfigKind

    described = await admin.describe_topic(topic)
    own = _values(await admin.describe_config(ConfigKind.TOPIC, topic))
    groups = _values(await admin.describe_config(ConfigKind.GROUP, group))
    settings: dict[str, Any] = {}
    for name, (key, group_key) in _KEYS.items():
        value = own.get(key, "")
        is_own = value not in _INHERITS
        text = value if is_own else groups.get(group_key, "")
        settings[name] = {
            "value": (text or None) if name == "dead_letters" else int(text or 0),
            "from": "queue" if is_own else "group",
        }
    return {
        "topic": topic,
        "group": group,
        "partitions": len(described.partitions),
        "retention": own.get("qbus.queue.retention"),
        "delays": own.get("qbus.delay.enable") == "true",
        "paused": own.get("qbus.queue.pause", "none"),
        "idle_ms": int(own.get(_IDLE) or -1),
        "settings": settings,
    }


def _values(entries: Any) -> Mapping[str, str]:
    return {entry.name: entry.value or "" for entry in entries}
