"""The configuration of a mirror: its tables and fields, with what each of them may be.

Times are in milliseconds and sizes in bytes, as the names say. 0 stands for "no limit" where a
field allows it.
"""

# ruff: noqa: RUF009 - `setting` gives a dataclass its fields

from dataclasses import dataclass

from qbus.service.toml import required, rules, setting

from . import rules as own

_MIB = 1024 * 1024

AUTO, NEVER = "auto", "never"

INTERNAL = "__.*"
"""Topics of brokers and tools, and no one's data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The IDC that is mirrored into: the ``[target]`` table."""

    idc: str = required(own.idc(), "What it is called: 1 to 64 ASCII letters, digits, `_` and `-`.")
    bootstrap: str = setting(
        "",
        own.bootstrap(),
        "Its brokers, as `host:port,...` or `zk://host:port/chroot`. Default: those that are"
        " registered in the ZooKeeper that the configuration came from.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An IDC that is mirrored: a ``[[source]]`` table."""

    idc: str = required(own.idc(), "What it is called: its `orders` becomes `<idc>.orders`.")
    bootstrap: str = required(own.bootstrap(), "Its brokers, as those of the target.")
    topics: tuple[str, ...] = setting(
        (),
        own.patterns(),
        "Which of its topics, by their names there. Default: `topics` at the top.",
    )
    exclude: tuple[str, ...] = setting(
        (), own.patterns(), "Which of these not, in addition to the top's `exclude`."
    )
    relay: bool = setting(
        True,
        rules.boolean(),
        "Whether topics that this IDC mirrors from others are mirrored on, under the names they"
        " have there. In a full mesh, where each IDC reads every other one itself, `false`.",
    )
    rate_limit_bytes: int = setting(
        0,
        rules.whole(0, 1 << 40),
        "Bytes of batches per second at most over this link, by each process; 0: no limit.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """How topics come to be at the target: the ``[topics_at_target]`` table."""

    replication_factor: int = setting(
        0,
        rules.whole(0, 32_767),
        "How many replicas new ones have. 0: as many as at the source, or as many as the target"
        " has brokers if those are fewer.",
    )
    copy_config: bool = setting(
        True,
        rules.boolean(),
        "Whether they have the configuration that was set for them at the source, now and when it"
        " changes there.",
    )
    config_exclude: tuple[str, ...] = setting(
        (
            "compression.type",
            "follower.replication.throttled.replicas",
            "leader.replication.throttled.replicas",
            "message.timestamp.difference.max.ms",
            "message.timestamp.before.max.ms",
            "message.timestamp.after.max.ms",
            "message.timestamp.type",
            "min.insync.replicas",
            "unclean.leader.election.enable",
        ),
        own.keys(),
        "Which of it not: what is the target's own business, or would keep records from being the"
        " same.",
    )
    discovery_interval_ms: int = setting(
        10_000,
        rules.whole(100, 3_600_000),
        "How often the source is looked at for new topics, partitions, configuration.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """How batches are copied: the ``[transfer]`` table."""

    fetch_bytes: int = setting(
        32 * _MIB,
        rules.whole(1024, 64 * _MIB),
        "How much one fetch brings at most, about; less when many are under way, which have half of"
        " `memory_bytes` together.",
    )
    partition_fetch_bytes: int = setting(
        2 * _MIB, rules.whole(1024, 64 * _MIB), "How much of that is of one partition, about."
    )
    fetch_wait_ms: int = setting(
        500, rules.whole(0, 60_000), "How long the source waits for records when there are none."
    )
    in_flight: int = setting(
        8,
        rules.whole(1, 64),
        "Requests on their way at a time to each broker, at the source and at the target; the"
        " longer the link, the more.",
    )
    memory_bytes: int = setting(
        64 * _MIB,
        rules.whole(_MIB, 1 << 40),
        "How much of a link is fetched ahead of the target's acknowledgement at most.",
    )
    request_timeout_ms: int = setting(
        30_000, rules.whole(100, 600_000), "How long a broker may take to answer."
    )
    session_timeout_ms: int = setting(
        10_000,
        rules.whole(1_000, 600_000),
        "After how long without a sign of life another process takes over the partitions of one.",
    )
    drain_timeout_ms: int = setting(
        10_000,
        rules.whole(0, 600_000),
        "How long a stopping mirror waits for acknowledgements of what it has sent.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Whose committed offsets are carried over: the ``[groups]`` table."""

    enabled: bool = setting(True, rules.boolean(), "Whether any are, on a schedule.")
    include: tuple[str, ...] = setting((".*",), own.patterns(), "Which groups, by their names.")
    exclude: tuple[str, ...] = setting((), own.patterns(), "Which of these not.")
    interval_ms: int = setting(
        10_000, rules.whole(100, 86_400_000), "How often they are carried over."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """What is done where the target is no Qbus: the ``[fallback]`` table."""

    reproduce: str = setting(
        AUTO,
        rules.choice(AUTO, NEVER),
        "`auto`: records are produced anew, with headers that tell where they come from;"
        " `never`: nothing is mirrored.",
    )
    compression: str = setting(
        "lz4",
        rules.choice("none", "gzip", "snappy", "lz4", "zstd"),
        "The new batches' compression.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig:
    """Everything a mirror is told, at the top of the file."""

    target: Target = required(rules.table(Target), "The IDC that is mirrored into.")
    sources: tuple[Source, ...] = setting(
        (), rules.tables(Source), "IDCs that are mirrored.", table="source"
    )
    topics: tuple[str, ...] = setting(
        (), own.patterns(), "Which topics of each source, unless that says it itself."
    )
    exclude: tuple[str, ...] = setting(
        (INTERNAL,), own.patterns(), "Which of these not, of any source."
    )
    topics_at_target: Topics = setting(
        Topics(), rules.table(Topics), "How topics come to be at the target."
    )
    transfer: Transfer = setting(Transfer(), rules.table(Transfer), "How batches are copied.")
    groups: Groups = setting(
        Groups(), rules.table(Groups), "Whose committed offsets are carried over."
    )
    fallback: Fallback = setting(
        Fallback(), rules.table(Fallback), "What is done where the target is no Qbus."
    )
