"""What no field of a pipeline's configuration can tell alone."""

import zoneinfo
from collections.abc import Iterable

from qbus.errors import ConfigError

from .abuse import AbuseConfig
from .archive import ArchiveConfig
from .audit import AuditConfig
from .common import JSON, Lines, Output, Pipeline, Source
from .rules import written
from .stats import COUNT, Statistic, StatsConfig

RECORD_FIELDS = ("topic", "partition")
"""Fields that each line has of its record."""

EVENT_TIME = "event_time"
"""The column that says when a line happened."""

ACCESS_LOG_FIELDS = (
    "address", "identity", "user", "request", "method", "target", "path", "query", "protocol",
    "status", "bytes", "referer", "agent",
)  # fmt: skip
"""The fields of a line of an access log."""

_MOST_PANES = 10_000


def check_archive(config: ArchiveConfig) -> None:
    """Raise ConfigError unless it says what is archived, and where."""
    _check_source(config.source)
    if not config.path:
        raise ConfigError("path is missing: expected a directory, or a URL that Spark takes")
    try:
        zoneinfo.ZoneInfo(config.time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"time_zone = {config.time_zone!r}: expected the name of a time zone, as Europe/Berlin"
        ) from None


def check_stats(config: StatsConfig) -> None:
    """Raise ConfigError unless there is something to compute, of fields that there are."""
    _check_source(config.source)
    _check_lines(config.lines)
    _check_output(config, config.output)
    if not config.statistics:
        raise ConfigError("nothing to compute: expected at least one [[statistic]]")
    names = [statistic.name for statistic in config.statistics]
    for number, statistic in enumerate(config.statistics, 1):
        place = f"statistic[{number}]"
        if statistic.name in names[: number - 1]:
            raise ConfigError(f"{place}.name = {statistic.name!r}: it is there twice")
        _check_statistic(place, statistic, config.lines)


def _check_statistic(place: str, statistic: Statistic, lines: Lines) -> None:
    if statistic.slide > statistic.window:
        raise ConfigError(
            f"{place}.slide = {written(statistic.slide)!r}: expected no more than the window,"
            f" {written(statistic.window)}"
        )
    for key in ("by", "sum", "mean", "min", "max", "distinct", "percentiles_of"):
        _check_fields(f"{place}.{key}", getattr(statistic, key), lines)
    columns = [
        COUNT,
        "per_second",
        *(f"{flat(one)}_sum" for one in statistic.sum),
        *(f"{flat(one)}_per_second" for one in statistic.sum),
        *(f"{flat(one)}_mean" for one in statistic.mean),
        *(f"{flat(one)}_min" for one in statistic.min),
        *(f"{flat(one)}_max" for one in statistic.max),
        *(f"{flat(one)}_distinct" for one in statistic.distinct),
    ]
    if statistic.top_by not in columns:
        raise ConfigError(
            f"{place}.top_by = {statistic.top_by!r}: expected one of {', '.join(columns)}"
        )
    if statistic.percentiles_of and not statistic.percentiles:
        raise ConfigError(f"{place}.percentiles = []: expected some, for percentiles_of")


def check_abuse(config: AbuseConfig) -> None:
    """Raise ConfigError unless it says what is abuse, by fields that there are."""
    _check_source(config.source)
    _check_lines(config.lines)
    _check_output(config, config.output)
    _check_fields("client", (config.client,), config.lines)
    _check_fields("bytes", (config.bytes,), config.lines)
    limits, baseline = config.limits, config.baseline
    if not (limits.requests or limits.bytes or baseline.own_factor or baseline.peers_factor):
        raise ConfigError(
            "nothing to detect: expected limits.requests, limits.bytes, baseline.own_factor or"
            " baseline.peers_factor"
        )
    spans = [("window", config.window)]
    if baseline.own_factor:
        spans.append(("baseline.history", baseline.history))
    for key, span in spans:
        if span % config.slide:
            raise ConfigError(
                f"{key} = {written(span)!r}: expected a multiple of slide, {written(config.slide)}"
            )
        if span // config.slide > _MOST_PANES:
            raise ConfigError(
                f"{key} = {written(span)!r}: expected at most {_MOST_PANES} times slide"
            )


def check_audit(config: AuditConfig) -> None:
    """Raise ConfigError unless it says what is compared with what."""
    _check_source(config.source)
    if bool(config.copy.archive) == bool(config.copy.bootstrap):
        raise ConfigError("copy.archive or copy.bootstrap: expected one of them")
    if config.copy.archive and config.copy.topics:
        raise ConfigError("copy.topics: in an archive topics have their own names")
    unread = [topic for topic, _ in config.copy.topics if topic not in config.source.topics]
    if unread and config.source.topics:
        raise ConfigError(f"copy.topics.{unread[0]}: source.topics does not have it")
    if config.since and config.until and config.since >= config.until:
        raise ConfigError(
            f"until = {config.until.isoformat()!r}: expected later than since,"
            f" {config.since.isoformat()}"
        )
    renamed = dict(config.copy.topics)
    same = [topic for topic in config.source.topics if renamed.get(topic, topic) == topic]
    if config.copy.bootstrap == config.bootstrap and same:
        raise ConfigError(f"copy.bootstrap = {config.bootstrap!r}: {same[0]} is its own copy")


def flat(field: str) -> str:
    """A field's name as part of a column's: ``user.name`` is ``user_name``."""
    return field.replace(".", "_")


def _check_source(source: Source) -> None:
    if bool(source.topics) == bool(source.pattern):
        raise ConfigError("source.topics or source.pattern: expected one of them")


def _check_lines(lines: Lines) -> None:
    if lines.format != JSON:
        for key in ("fields", "time"):
            if getattr(lines, key):
                raise ConfigError(f"lines.{key}: only lines of format json have one")
        return
    if not lines.fields:
        raise ConfigError('lines.fields is missing: expected a table, as {status = "int"}')
    names = [name for name, _ in lines.fields]
    for name in (*RECORD_FIELDS, EVENT_TIME):
        if name in names:
            raise ConfigError(f"lines.fields.{name}: this name is taken by what each record has")
    if lines.time:
        _check_fields("lines.time", (lines.time,), lines)


def _check_fields(place: str, fields: Iterable[str], lines: Lines) -> None:
    known = [name for name, _ in lines.fields] if lines.format == JSON else [*ACCESS_LOG_FIELDS]
    known += RECORD_FIELDS
    for field in fields:
        if field.partition(".")[0] not in known:
            raise ConfigError(f"{place}: there is no field {field}; there are {', '.join(known)}")


def _check_output(config: Pipeline, output: Output) -> None:
    if output.topic and output.path:
        raise ConfigError("output.topic and output.path: expected one of them, or neither")
    if output.bootstrap and not output.topic:
        raise ConfigError("output.bootstrap: expected output.topic as well")
    here = output.bootstrap in {"", config.bootstrap}
    if output.topic and here and output.topic in config.source.topics:
        raise ConfigError(f"output.topic = {output.topic!r}: the source reads that topic")
