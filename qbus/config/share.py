"""The configuration of a group: its own values, else the broker's defaults.

Kafka's keys and defaults, as of 4.x. They are set with IncrementalAlterConfigs on the resource
GROUP. Those that begin with ``qbus`` are Qbus's own.
"""

import re
from collections.abc import Mapping
from typing import Final

from qbus.config.broker import BrokerConfig
from qbus.config.groups import ConsumerKeys, ShareKeys
from qbus.config.settings import (
    ConfigEntry,
    ConfigSource,
    Settings,
    Stated,
    boolean,
    double,
    integer,
    long,
    string,
)
from qbus.errors import ConfigError
from qbus.names import is_topic_name

_DAY_MS: Final = 24 * 60 * 60 * 1000
_DURATION: Final = re.compile(
    r"P(?=\d|T\d)(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d{1,9})?S)?)?"
)
_FILTER: Final = re.compile(r"(?:any|all|none):[^,]+(?:,[^,]+)*")

BY_DURATION: Final = "by_duration:"


def _offset_reset(value: str) -> None:
    is_duration = value.startswith(BY_DURATION) and _DURATION.fullmatch(
        value.removeprefix(BY_DURATION)
    )
    if value not in {"latest", "earliest"} and not is_duration:
        raise ValueError("latest, earliest, or by_duration: and a duration such as PT1H30M")


def _topic_or_none(name: str) -> None:
    if name and not is_topic_name(name):
        raise ValueError("the name of a topic")


def _filter(expression: str) -> None:
    if expression and not _FILTER.fullmatch(expression):
        raise ValueError("any:, all: or none: and tags separated by commas")


class ShareGroupKeys(Settings):
    """The keys of a group: of one of the consumer protocol (KIP-848), and of a share group."""

    __slots__ = ()

    consumer_session_timeout_ms = integer(
        45_000,
        "A member of a group of the consumer protocol that sends no heartbeat for this long is "
        "removed from it.",
        unit="ms",
        at_least=1,
    )
    consumer_heartbeat_interval_ms = integer(
        5_000,
        "How often the members of a group of the consumer protocol are to send heartbeats.",
        unit="ms",
        at_least=1,
    )
    share_session_timeout_ms = integer(
        45_000,
        "A member that sends no heartbeat for this long is removed from the group.",
        unit="ms",
        at_least=1,
    )
    share_heartbeat_interval_ms = integer(
        5_000, "How often the members are to send heartbeats.", unit="ms", at_least=1
    )
    share_record_lock_duration_ms = integer(
        30_000,
        "How long a record that was given to a member is given to nobody else.",
        unit="ms",
        at_least=1,
    )
    share_delivery_count_limit = integer(
        5, "How often a record is given out at most. 0: no limit.", at_least=0
    )
    share_partition_max_record_locks = integer(
        2_000, "How many records of a partition may be given out at a time.", at_least=1
    )
    share_auto_offset_reset = string(
        "latest",
        "Where the group begins in a partition that is new to it: behind the last record (latest), "
        "at the first one (earliest), or at those of a time before now (by_duration:PT1H).",
        check=_offset_reset,
    )
    share_isolation_level = string(
        "read_uncommitted",
        "Whether records of transactions are given out before these are committed.",
        choices=("read_committed", "read_uncommitted"),
    )
    share_renew_acknowledge_enable = boolean(
        True, "Whether members may renew the locks of records that they work on."
    )
    errors_deadletterqueue_topic_name = string(
        "",
        "The topic that gets records which were rejected, or given out too often. Empty: those are "
        "dropped.",
        check=_topic_or_none,
    )
    qbus_retry_backoff_ms = long(
        0,
        "How long a record is not given out again after its first delivery failed.",
        unit="ms",
        at_least=0,
        at_most=365 * _DAY_MS,
    )
    qbus_retry_nack_backoff_ms = long(
        0,
        "Where qbus.retry.backoff.ms is 0: how long a record is not given out again after its "
        "second delivery was refused (NACK); after the first it is given out at once. 100 in the "
        "group disque, unless set.",
        unit="ms",
        at_least=0,
        at_most=365 * _DAY_MS,
    )
    qbus_retry_backoff_multiplier = double(
        2.0,
        "What each further failed delivery of a record multiplies qbus.retry.backoff.ms by.",
        at_least=1,
        at_most=100,
    )
    qbus_retry_backoff_max_ms = long(
        60 * 60 * 1000,
        "Longest time that a record is not given out after a failed delivery.",
        unit="ms",
        at_least=0,
        at_most=365 * _DAY_MS,
    )
    qbus_filter = string(
        "",
        "Only records whose header qbus-tags has any, all or none of some tags are given out, as "
        "in any:red,blue. Empty: all records are.",
        check=_filter,
    )


SHARE_GROUP_CONFIG = ShareGroupKeys.KEYS

BROKER_KEYS: Final[Mapping[str, str]] = {
    name: f"group.{name}"
    for name in SHARE_GROUP_CONFIG
    if f"group.{name}" in {**ShareKeys.KEYS, **ConsumerKeys.KEYS}
}
"""Group key -> the broker key that is its default."""


class ShareGroupConfig(ShareGroupKeys):
    """Every key of a share group, typed, with its value in force."""

    __slots__ = ("_broker", "_own")

    def __init__(self, broker: BrokerConfig, own: Mapping[str, str]) -> None:
        """``own``: the values of the group itself.

        Values that another version of Qbus stored and this one cannot read are ignored.
        """
        self._broker = broker
        self._own = self.parse_readable(own)
        defaults = {name: key.default for name, key in self.KEYS.items()}
        defaults |= {name: broker.values[other] for name, other in BROKER_KEYS.items()}
        self.values = {**defaults, **self._own}

    def describe(self, name: str) -> ConfigEntry:
        """Return a key with its value in force and its synonyms."""
        key = self.key(name)
        stated: tuple[Stated, ...] = ()
        if name in BROKER_KEYS:
            stated = tuple(self._broker.stated([BROKER_KEYS[name]]))
        if name in self._own:
            stated = (Stated(key, self._own[name], ConfigSource.GROUP), *stated)
        source = stated[0].source if stated else ConfigSource.DEFAULT
        return ConfigEntry(key, self.values[name], source, stated)


def check_share_group_config(broker: BrokerConfig, own: Mapping[str, str]) -> None:
    """Check the values that are to be set for a group.

    Raises:
        ConfigError: a name is unknown, a value is not allowed, or not within what the broker
            allows.
    """
    for name, value in ShareGroupKeys.parse(own).items():
        if name not in BROKER_KEYS:
            continue
        kind, _, limit = name.partition(".")
        lowest, highest = f"group.{kind}.min.{limit}", f"group.{kind}.max.{limit}"
        low, high = broker.values[lowest], broker.values[highest]
        if not low <= value <= high:
            raise ConfigError(
                f"{name}={value}: the brokers' {lowest} and {highest} allow {low} to {high}"
            )
