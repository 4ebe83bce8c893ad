"""Settings of all pipelines, and tables that several of them share."""

# ruff: noqa: RUF009 - `setting` gives a dataclass its fields

from dataclasses import dataclass

from qbus.service.toml import rules, setting

from . import rules as own

ACCESS_LOG, JSON = "access-log", "json"
ISO = "iso"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is read: the ``[source]`` table."""

    topics: tuple[str, ...] = setting((), own.topics(), "Topics to read.")
    pattern: str = setting(
        "", rules.regex(), "Instead: a regular expression for whole names; new topics come in."
    )
    starting: str = setting(
        "earliest",
        rules.choice("earliest", "latest"),
        "Where to begin when there is no checkpoint yet.",
    )
    batch_records: int = setting(
        0,
        rules.whole(0, 1 << 40),
        "Records of one micro-batch at most, shared out by backlog; 0: no limit.",
    )
    options: tuple[tuple[str, str], ...] = setting(
        (), own.options(), "Further options of the source, by the names they have on Spark."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """How values are read as lines with fields: the ``[lines]`` table."""

    format: str = setting(
        ACCESS_LOG,
        rules.choice(ACCESS_LOG, JSON),
        "`access-log` (the Common and the Combined Log Format), or `json`, an object a record.",
    )
    fields: tuple[tuple[str, str], ...] = setting(
        (),
        own.types(),
        "With `json`: the fields to read, and their types as Spark calls them:"
        ' `{path = "string", bytes = "bigint", user = "struct<name: string>"}`.',
    )
    time: str = setting(
        "",
        own.column(),
        "With `json`: the field that says when it happened. Default: the record's own timestamp.",
    )
    time_format: str = setting(
        ISO,
        rules.text(1, 64),
        "With `time`: `iso`, `seconds` or `milliseconds` since 1970, or one of Spark's patterns,"
        " as `dd/MMM/yyyy:HH:mm:ss Z`. Times without a zone are UTC.",
    )
    ahead: int = setting(
        86_400_000,
        own.duration(at_least_ms=0),
        "How far a line's time may be ahead of its record's. A line that is further ahead counts"
        " as one that cannot be read: all that come after it would be too late. `0 ms`: no limit.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where results go: the ``[output]`` table. Without it, to the console."""

    topic: str = setting("", rules.topic(), "A topic; each row is a JSON object.")
    bootstrap: str = setting(
        "", own.bootstrap(), "The cluster of that topic. Default: the one that is read."
    )
    path: str = setting("", rules.text(1, 4096), "Instead: a directory for Parquet files.")
    options: tuple[tuple[str, str], ...] = setting(
        (), own.options(), "Further options of the sink, by the names they have on Spark."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What is at the top of every pipeline's file."""

    bootstrap: str = setting(
        "127.0.0.1:9092",
        own.bootstrap(),
        "The cluster to read, as `host:port,...` or `zk://host:port/chroot`.",
    )
    source: Source = setting(Source(), rules.table(Source), "What is read.")
    spark: tuple[tuple[str, str], ...] = setting(
        (), own.options(), "Settings of the Spark session, by their own names."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming(Pipeline):
    """What is at the top of the files of pipelines that go on for ever."""

    name: str = setting(
        "",
        own.name(),
        "What the pipeline is called: in Spark's reports, and in the name of a checkpoint that has"
        " no other place.",
    )
    checkpoint: str = setting(
        "",
        rules.text(1, 4096),
        "A directory, or a URL that Spark takes, for how far the query has come.",
    )
    interval: int = setting(10_000, own.duration(), "How often a micro-batch begins, at most.")
