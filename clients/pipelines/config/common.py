"""Settings of all pipelines, and tables that several of them share."""

# ruff: noqa: RUF009 - `setting` gives a dataclass its fields

from dataclasses import dataclass

from qbus.security.table import DOC, SecurityTable, security_rule
from qbus.service.toml import rules, setting

from . import rules as own

ACCESS_LOG, JSON = "access-log", "json"
ISO = "iso"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is read: the ``[source]`` table."""

    topics: tuple[str, ...] = setting((), own.topics(), "Topics to read.")
    pattern: str = setting(
        "", rules.regex(), "Instead: a regular expression for whole names; new topics are included."
    )
    starting: str = setting(
        "earliest",
        rules.choice("earliest", "latest"),
        "Where to start without a checkpoint.",
    )
    batch_records: int = setting(
        0,
        rules.whole(0, 1 << 40),
        "The most records of a micro-batch, shared by backlog; 0: no limit.",
    )
    options: tuple[tuple[str, str], ...] = setting(
        (), own.options(), "Further options of the source, by their names on Spark."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """How values are parsed as lines with fields: the ``[lines]`` table."""

    format: str = setting(
        ACCESS_LOG,
        rules.choice(ACCESS_LOG, JSON),
        "`access-log` (the Common and the Combined Log Format), or `json`, one object per record.",
    )
    fields: tuple[tuple[str, str], ...] = setting(
        (),
        own.types(),
        "With `json`: the fields to read, and their Spark types:"
        ' `{path = "string", bytes = "bigint", user = "struct<name: string>"}`.',
    )
    time: str = setting(
        "",
        own.column(),
        "With `json`: the field with the event time. Default: the record's timestamp.",
    )
    time_format: str = setting(
        ISO,
        rules.text(1, 64),
        "With `time`: `iso`, `seconds` or `milliseconds` since 1970, or a pattern of Spark,"
        " such as `dd/MMM/yyyy:HH:mm:ss Z`. Times without a zone are UTC.",
    )
    ahead: int = setting(
        86_400_000,
        own.duration(at_least_ms=0),
        "How far a line's time may be ahead of its record's timestamp. A line further ahead counts"
        " as malformed, because all lines after it would be too late. `0 ms`: no limit.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where results go: the ``[output]`` table. Default: the console."""

    topic: str = setting("", rules.topic(), "A topic; each row is a JSON object.")
    bootstrap: str = setting(
        "", own.bootstrap(), "The cluster of the topic. Default: the one that is read."
    )
    security: SecurityTable = setting(
        SecurityTable(), security_rule(), "As `security` at the top, for another cluster."
    )
    path: str = setting("", rules.text(1, 4096), "Instead: a directory for Parquet files.")
    options: tuple[tuple[str, str], ...] = setting(
        (), own.options(), "Further options of the sink, by their names on Spark."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The top level of every pipeline's file."""

    bootstrap: str = setting(
        "127.0.0.1:9092",
        own.bootstrap(),
        "The cluster to read: `host:port,...` or `zk://host:port/chroot`.",
    )
    security: SecurityTable = setting(SecurityTable(), security_rule(), DOC)
    source: Source = setting(Source(), rules.table(Source), "What is read.")
    spark: tuple[tuple[str, str], ...] = setting(
        (), own.options(), "Settings of the Spark session, by their own names."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming(Pipeline):
    """The top level of the files of streaming pipelines."""

    name: str = setting(
        "",
        own.name(),
        "Name of the pipeline in Spark's reports, and of its default checkpoint.",
    )
    checkpoint: str = setting(
        "",
        rules.text(1, 4096),
        "The checkpoint: a directory, or a URL that Spark accepts.",
    )
    interval: int = setting(
        10_000, own.duration(), "Shortest time from one micro-batch to the next."
    )
