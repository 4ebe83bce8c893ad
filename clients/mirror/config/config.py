"""The configuration of a mirror: its tables and fields, their rules and meanings.

Times are in milliseconds and sizes in bytes, as the names say. 0 is "no limit" where it is allowed.
The keys ``idc`` are names of datacenters.
"""

# ruff: noqa: RUF009 - `setting` gives a dataclass its fields

from dataclasses import dataclass

from qbus.errors import ConfigError
from qbus.security.table import DOC, SecurityTable, security_rule
from qbus.service.toml import Loader, required, rules, setting, settings_of

from . import rules as own

_MIB = 1024 * 1024

AUTO, NEVER = "auto", "never"

INTERNAL = "__.*"
"""Internal topics of brokers and tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The datacenter that is mirrored into: the ``[target]`` table."""

    idc: str = required(own.idc(), "Its name: 1 to 64 ASCII letters, digits, `_` and `-`.")
    bootstrap: str = setting(
        "",
        own.bootstrap(),
        "Its brokers, as `host:port,...` or `zk://host:port/chroot`. Default: the brokers"
        " registered in the ZooKeeper that the configuration is from.",
    )
    security: SecurityTable = setting(SecurityTable(), security_rule(), DOC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A datacenter that is mirrored: a ``[[source]]`` table."""

    idc: str = required(own.idc(), "Its name: its topic `orders` becomes `<idc>.orders`.")
    bootstrap: str = required(own.bootstrap(), "Its brokers, in the form of the target's.")
    security: SecurityTable = setting(SecurityTable(), security_rule(), DOC)
    topics: tuple[str, ...] = setting(
        (),
        own.patterns(),
        "The topics to mirror, by their names there. Default: `topics` at the top.",
    )
    exclude: tuple[str, ...] = setting(
        (), own.patterns(), "Topics to leave out, in addition to the top's `exclude`."
    )
    relay: bool = setting(
        True,
        rules.boolean(),
        "Whether topics that this datacenter mirrors from others are mirrored on, under their names"
        " there. Use `false` in a full mesh, where each datacenter reads every other one itself.",
    )
    rate_limit_bytes: int = setting(
        0,
        rules.whole(0, 1 << 40),
        "The most bytes of batches per second over this link, by each process; 0: no limit.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """How topics are created at the target: the ``[topics_at_target]`` table."""

    replication_factor: int = setting(
        0,
        rules.whole(0, 32_767),
        "The replication factor of new topics. 0: that of the source, or the number of the target's"
        " brokers if that is smaller.",
    )
    copy_config: bool = setting(
        True,
        rules.boolean(),
        "Whether topics get the configuration that was set for them at the source, now and whenever"
        " it changes there.",
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
            "qbus.delay.dead.letter.topic",
            "unclean.leader.election.enable",
        ),
        own.keys(),
        "Keys that are not copied: those that are up to the target, or that would change records.",
    )
    discovery_interval_ms: int = setting(
        10_000,
        rules.whole(100, 3_600_000),
        "How often the clusters are compared whole, configurations included. New and deleted"
        " topics, and new partitions, are noticed within half a second, or a few seconds if the"
        " source has very many topics.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """How batches are copied: the ``[transfer]`` table."""

    fetch_bytes: int = setting(
        32 * _MIB,
        rules.whole(1024, 64 * _MIB),
        "The approximate limit of one fetch; all fetches in flight share half of `memory_bytes`.",
    )
    partition_fetch_bytes: int = setting(
        2 * _MIB, rules.whole(1024, 64 * _MIB), "The approximate limit of one partition in a fetch."
    )
    fetch_wait_ms: int = setting(
        500, rules.whole(0, 60_000), "How long the source waits for records if there are none."
    )
    in_flight: int = setting(
        8,
        rules.whole(1, 64),
        "The most requests in flight to each broker, at the source and at the target; a longer"
        " link needs more.",
    )
    memory_bytes: int = setting(
        64 * _MIB,
        rules.whole(_MIB, 1 << 40),
        "The most bytes of a link that are fetched and not yet acknowledged by the target.",
    )
    request_timeout_ms: int = setting(
        30_000, rules.whole(100, 600_000), "How long a broker may take to answer a request."
    )
    session_timeout_ms: int = setting(
        10_000,
        rules.whole(1_000, 600_000),
        "Other processes take over the partitions of a process that is silent for so long.",
    )
    drain_timeout_ms: int = setting(
        10_000,
        rules.whole(0, 600_000),
        "How long a stopping mirror waits for the acknowledgements of what it has sent.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups whose committed offsets are synced: the ``[groups]`` table."""

    enabled: bool = setting(True, rules.boolean(), "Whether offsets are synced at intervals.")
    include: tuple[str, ...] = setting((".*",), own.patterns(), "The groups to sync, by name.")
    exclude: tuple[str, ...] = setting((), own.patterns(), "Groups to leave out.")
    interval_ms: int = setting(10_000, rules.whole(100, 86_400_000), "The interval of syncs.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """What is done if the target is no Qbus: the ``[fallback]`` table."""

    reproduce: str = setting(
        AUTO,
        rules.choice(AUTO, NEVER),
        "`auto`: records are reproduced, with headers that tell their origin; `never`: nothing is"
        " mirrored.",
    )
    compression: str = setting(
        "lz4",
        rules.choice("none", "gzip", "snappy", "lz4", "zstd"),
        "The compression of reproduced batches.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig:
    """The whole configuration of a mirror: the top of the file."""

    target: Target = required(rules.table(Target), "The datacenter that is mirrored into.")
    sources: tuple[Source, ...] = setting(
        (), rules.tables(Source), "Datacenters that are mirrored.", table="source"
    )
    topics: tuple[str, ...] = setting(
        (), own.patterns(), "The topics to mirror, of sources that do not state them."
    )
    exclude: tuple[str, ...] = setting(
        (INTERNAL,), own.patterns(), "Topics to leave out, of any source."
    )
    topics_at_target: Topics = setting(
        Topics(), rules.table(Topics), "How topics are created at the target."
    )
    transfer: Transfer = setting(Transfer(), rules.table(Transfer), "How batches are copied.")
    groups: Groups = setting(
        Groups(), rules.table(Groups), "The groups whose committed offsets are synced."
    )
    fallback: Fallback = setting(
        Fallback(), rules.table(Fallback), "What is done if the target is no Qbus."
    )


_BOOTSTRAP = settings_of(Target)["bootstrap"]


def _checked(config: MirrorConfig) -> MirrorConfig:
    """Check what no field can tell alone."""
    if not config.target.bootstrap:
        raise ConfigError(f"target.bootstrap is missing: expected {_BOOTSTRAP.rule.allowed}")
    if not config.sources:
        raise ConfigError("nothing to mirror: expected at least one [[source]]")
    names: set[str] = set()
    for number, source in enumerate(config.sources, 1):
        place = f"source[{number}]"
        if source.idc == config.target.idc:
            raise ConfigError(f"{place}.idc = {source.idc!r}: it is the target's")
        if source.idc in names:
            raise ConfigError(f"{place}.idc = {source.idc!r}: it is there twice")
        if not (source.topics or config.topics):
            raise ConfigError(f"{place}.topics is missing, and there are none at the top either")
        names.add(source.idc)
    transfer = config.transfer
    if transfer.partition_fetch_bytes > transfer.fetch_bytes:
        raise ConfigError(
            f"transfer.partition_fetch_bytes = {transfer.partition_fetch_bytes}: expected at most"
            f" fetch_bytes, which is {transfer.fetch_bytes}"
        )
    return config


LOADER = Loader(MirrorConfig, _checked)
load, parse, read = LOADER.load, LOADER.parse, LOADER.read
