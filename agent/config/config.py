"""The configuration of an agent: its tables and fields, their rules and meanings.

Times are in milliseconds and sizes in bytes, as the names say. 0 is "no limit" where it is allowed.
"""

# ruff: noqa: RUF009 - `setting` gives a dataclass its fields

import re
from dataclasses import dataclass, replace

from qbus.errors import ConfigError
from qbus.security.table import DOC, SecurityTable, security_rule
from qbus.service.toml import Loader, required, rules, setting, settings_of

from . import rules as own
from .template import Template

_MIB = 1024 * 1024

SPLIT, TRUNCATE = "split", "truncate"
START_OVER, CONTINUE = "start_over", "continue"
AUTO, INOTIFY, POLL = "auto", "inotify", "poll"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Files that are shipped to one topic: a ``[[source]]`` table."""

    paths: tuple[str, ...] = required(
        own.paths(), "Files or globs (`*`, `?`, `[...]`, and `**` for any depth of directories)."
    )
    topic: str = setting("", rules.topic(), "The topic of the lines. Default: the agent's `topic`.")
    exclude: tuple[str, ...] = setting(
        (), own.globs(), "Globs of files to leave out, by their paths or by their names alone."
    )
    from_beginning: bool = setting(
        False,
        rules.boolean(),
        "Whether files that exist at the agent's first start are shipped from their beginning;"
        " else only what is added to them. Files that appear later are always shipped whole.",
    )
    topic_change: str = setting(
        START_OVER,
        rules.choice(START_OVER, CONTINUE),
        "What happens to files that were shipped to a topic which the configuration no longer"
        " names: `start_over` treats them as new ones (see `from_beginning`), `continue` ships to"
        " the new topic what the former one did not get.",
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
        "The encoding of the files, such as `utf-16-le` or `latin-1`; lines are shipped as UTF-8,"
        " without the file's byte order mark."
        " Default: the bytes of the lines are shipped unchanged.",
    )
    multiline_start: re.Pattern[bytes] | None = setting(
        None,
        own.pattern(),
        "A regular expression. A line in which it is found begins a record; the lines after it in"
        " which it is not found belong to that record. Default: each line is a record.",
    )
    multiline_timeout_ms: int = setting(
        2000,
        rules.whole(1, 3_600_000),
        "How long an unfinished record of several lines waits for its next line.",
    )
    multiline_max_lines: int = setting(
        500, rules.whole(1, 1_000_000), "The most lines of a record."
    )
    line_limit_bytes: int = setting(
        512 * 1024, rules.whole(16, 64 * _MIB), "The longest record; see `line_too_long`."
    )
    line_too_long: str = setting(
        SPLIT,
        rules.choice(SPLIT, TRUNCATE),
        "What happens to longer records: `split` into several, or `truncate`d with a marker.",
    )
    truncation_marker: str = setting(
        "...[truncated]", rules.text(0, 256), "The end of the record of a truncated line."
    )
    gzip: bool = setting(
        False,
        rules.boolean(),
        "Whether files ending in `.gz` are unpacked and shipped, once; else they are ignored.",
    )
    rotated_timeout_ms: int = setting(
        10_000,
        rules.whole(10, 86_400_000),
        "How long the agent waits for a renamed or deleted file to grow. Then its unfinished last"
        " line is shipped as it is, and if no path matches the file any more, it is closed.",
    )
    close_idle_ms: int = setting(
        300_000,
        rules.whole(100, 7 * 86_400_000),
        "A file without a new line for so long is closed; it is opened again when it grows.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSource:
    """A ``spool_dir`` of applications that this agent empties: a ``[[spool]]`` table."""

    directory: str = required(rules.path(), "The `spool_dir` of the producers.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How records are sent: the ``[delivery]`` table. Always idempotent, with ``acks=all``."""

    compression: str = setting(
        "lz4", rules.choice("none", "gzip", "snappy", "lz4", "zstd"), "The compression of batches."
    )
    compression_level: int | None = setting(
        None, rules.whole(-131072, 22), "The compression level. Default: the codec's default."
    )
    batch_bytes: int = setting(
        1_000_000, rules.whole(1024, 64 * _MIB), "The size at which a batch is sent."
    )
    linger_ms: int = setting(
        50,
        rules.whole(0, 60_000),
        "The longest time that lines wait for more of them, to be sent together; a line after a"
        " pause that long is sent at once.",
    )
    memory_bytes: int = setting(
        32 * _MIB,
        rules.whole(1 * _MIB, 1 << 40),
        "The most that is read and not yet acknowledged by the brokers; then reading waits.",
    )
    rate_limit_bytes: int = setting(
        0, rules.whole(0, 1 << 40), "The most bytes read from files per second; 0: no limit."
    )
    request_timeout_ms: int = setting(
        30_000, rules.whole(100, 600_000), "How long a broker may take to answer a request."
    )
    drain_timeout_ms: int = setting(
        10_000,
        rules.whole(0, 600_000),
        "How long a stopping agent waits for the acknowledgements of what it has sent.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tailing:
    """How files are found and watched: the ``[tailing]`` table."""

    watch: str = setting(
        AUTO,
        rules.choice(AUTO, INOTIFY, POLL),
        "How changes are noticed: by the kernel's `inotify`, or by polling (`poll`); `auto`:"
        " inotify where it works, else polling.",
    )
    poll_interval_ms: int = setting(
        1000,
        rules.whole(10, 600_000),
        "How often files are polled without inotify; spools are always polled.",
    )
    discovery_interval_ms: int = setting(
        10_000,
        rules.whole(10, 3_600_000),
        "How often the globs are expanded, even if no change is noticed.",
    )
    fingerprint_bytes: int = setting(
        256,
        rules.whole(16, 65_536),
        "How much of a file's head distinguishes it from another file with the same inode.",
    )
    max_open_files: int = setting(
        0,
        rules.whole(0, 1_000_000),
        "The most open files; 0: as many as the system allows.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The whole configuration of an agent: the top of the file."""

    bootstrap: str = setting(
        "",
        own.bootstrap(),
        "Bootstrap brokers, as `host:port,...` or `zk://host:port/chroot`. Default: the brokers"
        " registered in the ZooKeeper that the configuration is from.",
    )
    security: SecurityTable = setting(SecurityTable(), security_rule(), DOC)
    topic: str = setting("", rules.topic(), "The default topic of sources.")
    host: str = setting(
        "", rules.text(1, 255), "The value of `{host}`. Default: the machine's host name."
    )
    sources: tuple[Source, ...] = setting(
        (), rules.tables(Source), "Files to ship.", table="source"
    )
    spools: tuple[SpoolSource, ...] = setting(
        (), rules.tables(SpoolSource), "Spools to empty.", table="spool"
    )
    delivery: Delivery = setting(Delivery(), rules.table(Delivery), "How records are sent.")
    tailing: Tailing = setting(Tailing(), rules.table(Tailing), "How files are watched.")


_BOOTSTRAP = settings_of(AgentConfig)["bootstrap"]
_WITHOUT_LEVELS = frozenset({"none", "snappy"})


def _checked(config: AgentConfig) -> AgentConfig:
    """Check what no field can tell alone, and give each source its topic."""
    if not config.bootstrap:
        raise ConfigError(f"bootstrap is missing: expected {_BOOTSTRAP.rule.allowed}")
    if not config.sources and not config.spools:
        raise ConfigError("nothing to ship: expected at least one [[source]] or [[spool]]")
    for number, source in enumerate(config.sources, 1):
        if not (source.topic or config.topic):
            raise ConfigError(
                f"source[{number}].topic is missing, and there is no topic at the top either"
            )
        if source.line_limit_bytes <= len(source.truncation_marker.encode()):
            raise ConfigError(
                f"source[{number}].truncation_marker = {source.truncation_marker!r}:"
                " expected less than line_limit_bytes"
            )
    delivery = config.delivery
    if delivery.compression_level is not None and delivery.compression in _WITHOUT_LEVELS:
        raise ConfigError(
            f"delivery.compression_level = {delivery.compression_level}:"
            f" compression {delivery.compression} has no levels"
        )
    directories = [spool.directory.rstrip("/") for spool in config.spools]
    for number, directory in enumerate(directories, 1):
        if directory in directories[: number - 1]:
            raise ConfigError(f"spool[{number}].directory = {directory!r}: it is there twice")
    sources = tuple(
        replace(source, topic=source.topic or config.topic) for source in config.sources
    )
    return replace(config, sources=sources)


LOADER = Loader(AgentConfig, _checked)
load, parse, read = LOADER.load, LOADER.parse, LOADER.read
