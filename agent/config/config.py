"""The configuration of an agent: its tables and fields, with what each of them may be.

Times are in milliseconds and sizes in bytes, as the names say. 0 stands for "no limit" where a
field allows it.
"""

# ruff: noqa: RUF009 - `setting` gives a dataclass its fields

import re
from dataclasses import dataclass

from qbus.service.toml import required, rules, setting

from . import rules as own
from .template import Template

_MIB = 1024 * 1024

SPLIT, TRUNCATE = "split", "truncate"
AUTO, INOTIFY, POLL = "auto", "inotify", "poll"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Files that are shipped to one topic: a ``[[source]]`` table."""

    paths: tuple[str, ...] = required(
        own.paths(), "Files or globs (`*`, `?`, `[...]`, and `**` for any depth of directories)."
    )
    topic: str = setting("", rules.topic(), "Where the lines go. Default: the agent's `topic`.")
    exclude: tuple[str, ...] = setting(
        (), own.globs(), "Globs of files to leave out, by their path or by their name alone."
    )
    from_beginning: bool = setting(
        False,
        rules.boolean(),
        "Whether files that are there at the agent's very first look are shipped from their start;"
        " else only what is added to them. Files that appear later are always shipped whole.",
    )
    key: Template | None = setting(
        None, own.template(), "A template for each record's key. Default: records have no key."
    )
    headers: tuple[tuple[str, Template], ...] = setting(
        (), own.templates(), "A table of header names, and templates for their values."
    )
    encoding: str = setting(
        "",
        own.encoding(),
        "What the files are encoded in, as `utf-16-le` or `latin-1`; lines are shipped as UTF-8."
        " Default: lines are shipped as the bytes they are, whatever those mean.",
    )
    multiline_start: re.Pattern[bytes] | None = setting(
        None,
        own.pattern(),
        "A regular expression: a line that it is found in begins a record, and lines after it that"
        " do not match belong to that record. Default: each line is a record.",
    )
    multiline_timeout_ms: int = setting(
        2000,
        rules.whole(1, 3_600_000),
        "How long a record of several lines is waited for to go on.",
    )
    multiline_max_lines: int = setting(
        500, rules.whole(1, 1_000_000), "The most lines of one record."
    )
    line_limit_bytes: int = setting(
        512 * 1024, rules.whole(16, 64 * _MIB), "The longest record; see `line_too_long`."
    )
    line_too_long: str = setting(
        SPLIT,
        rules.choice(SPLIT, TRUNCATE),
        "What becomes of longer ones: `split` into several records, or `truncate`d with a marker.",
    )
    truncation_marker: str = setting(
        "...[truncated]", rules.text(0, 256), "What the record of a truncated line ends with."
    )
    gzip: bool = setting(
        False,
        rules.boolean(),
        "Whether files that end in `.gz` are unpacked and read, once; else they are left alone.",
    )
    rotated_timeout_ms: int = setting(
        10_000,
        rules.whole(10, 86_400_000),
        "How long a file that was renamed or deleted is waited for to grow; then its unfinished"
        " last line is shipped as it is, and if no path matches it any more, it is closed.",
    )
    close_idle_ms: int = setting(
        300_000,
        rules.whole(100, 7 * 86_400_000),
        "After how long without a new line a file is closed; it is opened again when it grows.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSource:
    """A ``spool_dir`` of applications, emptied by this agent: a ``[[spool]]`` table."""

    directory: str = required(rules.path(), "The directory that producers were given.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How records are sent: the ``[delivery]`` table. Always idempotent, with ``acks=all``."""

    compression: str = setting(
        "lz4", rules.choice("none", "gzip", "snappy", "lz4", "zstd"), "The batches' compression."
    )
    compression_level: int | None = setting(
        None, rules.whole(-131072, 22), "The codec's own level. Default: the codec's default."
    )
    batch_bytes: int = setting(
        1_000_000, rules.whole(1024, 64 * _MIB), "From this size on a batch is sent."
    )
    linger_ms: int = setting(
        50, rules.whole(0, 60_000), "How long a batch waits for more lines at most."
    )
    memory_bytes: int = setting(
        32 * _MIB,
        rules.whole(1 * _MIB, 1 << 40),
        "How much is read ahead of the broker's acknowledgement at most; then reading waits.",
    )
    rate_limit_bytes: int = setting(
        0, rules.whole(0, 1 << 40), "Bytes read from files per second at most; 0: no limit."
    )
    request_timeout_ms: int = setting(
        30_000, rules.whole(100, 600_000), "How long a broker may take to answer."
    )
    drain_timeout_ms: int = setting(
        10_000,
        rules.whole(0, 600_000),
        "How long a stopping agent waits for acknowledgements of what it has sent.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tailing:
    """How files are found and watched: the ``[tailing]`` table."""

    watch: str = setting(
        AUTO,
        rules.choice(AUTO, INOTIFY, POLL),
        "How changes are noticed: the kernel's `inotify`, or by looking (`poll`); `auto`: inotify"
        " where it works, and looking where it does not.",
    )
    poll_interval_ms: int = setting(
        1000,
        rules.whole(10, 600_000),
        "How often files are looked at where nothing tells of changes; spools, always.",
    )
    discovery_interval_ms: int = setting(
        10_000,
        rules.whole(10, 3_600_000),
        "How often the globs are expanded anew, whatever is noticed meanwhile.",
    )
    fingerprint_bytes: int = setting(
        256,
        rules.whole(16, 65_536),
        "How much of a file's head tells it from another one with the same inode.",
    )
    max_open_files: int = setting(
        0, rules.whole(0, 1_000_000), "Files held open at a time; 0: as many as the system allows."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Everything an agent is told, at the top of the file."""

    bootstrap: str = setting(
        "",
        own.bootstrap(),
        "Brokers to start from, as `host:port,...` or `zk://host:port/chroot`. Default: those that"
        " are registered in the ZooKeeper that the configuration came from.",
    )
    topic: str = setting("", rules.topic(), "The topic of sources that name none.")
    host: str = setting(
        "", rules.text(1, 255), "What `{host}` stands for. Default: the machine's host name."
    )
    sources: tuple[Source, ...] = setting(
        (), rules.tables(Source), "Files to ship.", table="source"
    )
    spools: tuple[SpoolSource, ...] = setting(
        (), rules.tables(SpoolSource), "Spools to empty.", table="spool"
    )
    delivery: Delivery = setting(Delivery(), rules.table(Delivery), "How records are sent.")
    tailing: Tailing = setting(Tailing(), rules.table(Tailing), "How files are watched.")
