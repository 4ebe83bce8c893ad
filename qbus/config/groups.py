"""Broker configuration: consumer groups and their offsets."""

from qbus.config.settings import Settings, integer, long


class GroupKeys(Settings):
    """Limits of groups and of what they store."""

    __slots__ = ()

    group_initial_rebalance_delay_ms = integer(
        3_000,
        "How long the first rebalance of an empty group waits for more members.",
        unit="ms",
        at_least=0,
        static=True,
    )
    group_min_session_timeout_ms = integer(
        6_000,
        "The shortest session time-out that a member may ask for.",
        unit="ms",
        at_least=1,
        static=True,
    )
    group_max_session_timeout_ms = integer(
        30 * 60_000,
        "The longest session time-out that a member may ask for.",
        unit="ms",
        at_least=1,
        static=True,
    )
    group_max_size = integer(
        2**31 - 1, "How many members a group may have.", at_least=1, static=True
    )
    offsets_retention_minutes = integer(
        7 * 24 * 60,
        "Offsets are dropped this long after their group's last member left, or after the last "
        "commit where there are no members.",
        unit="minutes",
        at_least=1,
        static=True,
    )
    offsets_retention_check_interval_ms = long(
        10 * 60_000,
        "How often offsets are looked through for such to drop.",
        unit="ms",
        at_least=1,
        static=True,
    )
    offset_metadata_max_bytes = integer(
        4096,
        "The most that a client may store with an offset.",
        unit="bytes",
        at_least=0,
        static=True,
    )
