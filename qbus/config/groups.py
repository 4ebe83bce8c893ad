"""Broker configuration: consumer groups and their offsets."""

from qbus.config.settings import Settings, integer, long


class GroupKeys(Settings):
    """The settings of groups and of their offsets."""

    __slots__ = ()

    group_initial_rebalance_delay_ms = integer(
        3_000,
        "How long the first rebalance of an empty group waits for further members.",
        unit="ms",
        at_least=0,
        static=True,
    )
    group_min_session_timeout_ms = integer(
        6_000,
        "Minimum session time-out that a member may request.",
        unit="ms",
        at_least=1,
        static=True,
    )
    group_max_session_timeout_ms = integer(
        30 * 60_000,
        "Maximum session time-out that a member may request.",
        unit="ms",
        at_least=1,
        static=True,
    )
    group_max_size = integer(
        2**31 - 1, "Maximum number of members of a group.", at_least=1, static=True
    )
    offsets_retention_minutes = integer(
        7 * 24 * 60,
        "Committed offsets are deleted this long after the group's last member left, or after the "
        "last commit if the group never had members.",
        unit="minutes",
        at_least=1,
        static=True,
    )
    offsets_retention_check_interval_ms = long(
        10 * 60_000,
        "How often expired offsets are searched for and deleted.",
        unit="ms",
        at_least=1,
        static=True,
    )
    offset_metadata_max_bytes = integer(
        4096,
        "Maximum size of the metadata that a client stores with an offset.",
        unit="bytes",
        at_least=0,
        static=True,
    )
