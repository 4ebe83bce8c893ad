"""How a configuration is altered, and which changes are refused.

The mirror keys have rules of their own. A topic becomes a mirror only when it is created: where
offsets decide, a log with records of its own would pass for one that is ahead of its source. It may
cease to be a mirror at any time and for good; producers then continue where the mirror ended. That
it was a mirror stays known, because its offsets may have gaps. So does that it was compacted.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from qbus.config import ConfigType, Settings
from qbus.errors import ApiError, ConfigError, ErrorCode

MIRROR_SOURCE = "qbus.mirror.source"
FORMER_MIRROR_SOURCE = "qbus.mirror.former.source"
IDLE_TIME = "qbus.queue.idle.ms"
CLEANUP_POLICY = "cleanup.policy"
COMPACTED = "qbus.compacted"
MIRROR_KEYS = frozenset(
    {MIRROR_SOURCE, FORMER_MIRROR_SOURCE, "qbus.mirror.topic.id", "qbus.mirror.path"}
)


class EditKind(IntEnum):
    """The operation of an edit, by its number in IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Edit(NamedTuple):
    """The change of one key. APPEND and SUBTRACT add items to a list or remove them."""

    name: str
    kind: int
    value: str | None


def edit(keys: type[Settings], current: Mapping[str, str], edits: Iterable[Edit]) -> dict[str, str]:
    """Apply edits to ``current``; keys without an edit stay.

    Raises:
        ApiError: INVALID_REQUEST, the edits are invalid for any keys.
        ConfigError: a key is unknown, or its new value is not allowed.
    """
    edited = dict(current)
    seen = set()
    for name, kind, value in edits:
        if name in seen:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is edited twice")
        seen.add(name)
        if kind == EditKind.DELETE:
            edited.pop(name, None)  # even if unknown: an older Qbus may have stored it
            continue
        if kind not in EditKind.__members__.values():
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: unknown operation {kind}")
        if value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: a value is required")
        if keys.ignores(name):
            continue
        text = value if kind == EditKind.SET else _edit_list(keys, edited, Edit(name, kind, value))
        keys.key(name).parse(text)
        edited[name] = text
    return edited


def replace(keys: type[Settings], config: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Replace the whole configuration by ``config`` (KIP-133).

    Raises:
        ApiError: INVALID_REQUEST, a key is repeated or has no value.
        ConfigError: a key is unknown, or a value not allowed.
    """
    return edit(keys, {}, (Edit(name, EditKind.SET, value) for name, value in config))


def check_dynamic(keys: type[Settings], names: Iterable[str]) -> None:
    """Check that the keys may be changed while the broker runs.

    Raises:
        ConfigError: one may not.
    """
    for name in names:
        of_listener = name.startswith("listener.name.")
        if of_listener or (name in keys.KEYS and keys.KEYS[name].static):
            raise ConfigError(f"{name} takes effect only when the broker starts")


def _edit_list(keys: type[Settings], current: Mapping[str, str], change: Edit) -> str:
    key = keys.key(change.name)
    if key.type is not ConfigType.LIST:
        raise ConfigError(f"{key.name} is {key.type.noun}; only lists are appended to")
    before = current.get(key.name)
    items = list(ConfigType.LIST.parse(before) if before is not None else key.default or ())
    for item in ConfigType.LIST.parse(change.value):
        if change.kind == EditKind.APPEND and item not in items:
            items.append(item)
        elif change.kind == EditKind.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def with_mirror_source(current: Mapping[str, str], edited: Mapping[str, str]) -> dict[str, str]:
    """Apply the rules of mirrors to an edited configuration of a topic.

    Raises:
        ConfigError: the edit makes an existing topic a mirror, changes its source, or hides that
            it was a mirror.
    """
    config = dict(edited)
    before, source = current.get(MIRROR_SOURCE, "").strip(), edited.get(MIRROR_SOURCE, "").strip()
    if source and source != before:
        raise ConfigError(
            f"{MIRROR_SOURCE}={source}: only a new topic becomes a mirror;"
            " delete this one, or mirror under another name"
        )
    if edited.get(FORMER_MIRROR_SOURCE, "") != current.get(FORMER_MIRROR_SOURCE, ""):
        raise ConfigError(f"{FORMER_MIRROR_SOURCE} cannot be changed; only the broker sets it")
    if not source:
        config.pop(MIRROR_SOURCE, None)
        if before:
            config[FORMER_MIRROR_SOURCE] = before
    return config


def with_compacted(current: Mapping[str, str], edited: Mapping[str, str]) -> dict[str, str]:
    """Keep in an edited configuration of a topic that the topic was compacted.

    Raises:
        ConfigError: the edit says what only the broker does.
    """
    config = dict(edited)
    if config.pop(COMPACTED, None) not in {None, current.get(COMPACTED)}:
        raise ConfigError(f"{COMPACTED} cannot be changed; only the broker sets it")
    ends = _compacts(current) and not _compacts(edited)
    if ends or current.get(COMPACTED) is not None:
        config[COMPACTED] = "true"
    return config


def with_idle_time(current: Mapping[str, str], edited: Mapping[str, str]) -> dict[str, str]:
    """Drop the idle time-out of a queue from a configuration that changes anything else.

    A queue that ADDJOB has created, and that somebody configures, is kept as one that was created
    on purpose: its deletion would take the configuration along.
    """
    config = dict(edited)
    if config != dict(current) and config.get(IDLE_TIME) == current.get(IDLE_TIME):
        config.pop(IDLE_TIME, None)
    return config


def says_compacted(config: Mapping[str, str]) -> bool:
    """Whether a topic's own configuration says that it is, or was, compacted."""
    return _compacts(config) or COMPACTED in config


def remember_compacted(current: Mapping[str, str]) -> dict[str, str]:
    """The configuration of a topic that was compacted by the brokers' default policy."""
    return {**current, COMPACTED: "true"}


def _compacts(config: Mapping[str, str]) -> bool:
    return "compact" in ConfigType.LIST.parse(config.get(CLEANUP_POLICY, ""))
