"""Checks of a pipeline's configuration that involve several fields."""

import re
import zoneinfo
from collections.abc import Iterable

from qbus.errors import ConfigError

from .abuse import AbuseConfig
from .archive import ArchiveConfig
from .audit import AuditConfig
from .common import ISO, JSON, Lines, Output, Pipeline, Source
from .rules import written
from .stats import COUNT, PERCENTILES, Statistic, StatsConfig, columns, measures

RECORD_FIELDS = ("topic", "partition")
"""Fields of the record that each line has."""

EVENT_TIME = "event_time"
"""The column with the time of the event."""

ACCESS_LOG_FIELDS = (
    "address", "identity", "user", "request", "method", "target", "path", "query", "protocol",
    "status", "bytes", "referer", "agent",
)  # fmt: skip
"""The fields of a line of an access log."""

_TAKEN = (*RECORD_FIELDS, EVENT_TIME, "malformed", "_broken")
"""Reserved names of fields; Spark ignores case."""

_MOST_WINDOWS = 1000
_MOST_PANES = 10_000
_PATTERNS = "*?[]{}"


def check_archive(config: ArchiveConfig) -> ArchiveConfig:
    """Raise ConfigError unless the configuration says what is archived, and where."""
    _check_source(config.source)
    check_compaction(config)
    try:
        zoneinfo.ZoneInfo(config.time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"time_zone = {config.time_zone!r}: expected a time zone, such as Europe/Berlin"
        ) from None
    return config


def check_compaction(config: ArchiveConfig) -> ArchiveConfig:
    """Raise ConfigError unless the configuration says which archive is compacted."""
    if not config.path:
        raise ConfigError("path is missing: expected a directory, or a URL that Spark accepts")
    if any(char in config.path for char in _PATTERNS):
        raise ConfigError(
            f"path = {config.path!r}: expected none of {_PATTERNS}, which Spark reads as patterns"
        )
    return config


def check_stats(config: StatsConfig) -> StatsConfig:
    """Raise ConfigError unless there are statistics, of existing fields."""
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
    return config


def _check_statistic(place: str, statistic: Statistic, lines: Lines) -> None:
    slide = statistic.slide or statistic.window
    if slide > statistic.window or statistic.window > slide * _MOST_WINDOWS:
        raise ConfigError(
            f"{place}.slide = {written(slide)!r}: expected no more than the window,"
            f" {written(statistic.window)}, and no less than a {_MOST_WINDOWS}th of it"
        )
    for key in ("by", "sum", "mean", "min", "max", "distinct", "percentiles_of"):
        _check_fields(f"{place}.{key}", getattr(statistic, key), lines)
    if statistic.percentiles_of:
        if not statistic.percentiles:
            raise ConfigError(f"{place}.percentiles = []: expected some, for percentiles_of")
    elif statistic.percentiles != PERCENTILES or statistic.exact_percentiles:
        raise ConfigError(f"{place}.percentiles_of is missing: expected fields, for percentiles")
    if statistic.top_by not in measures(statistic):
        raise ConfigError(
            f"{place}.top_by = {statistic.top_by!r}: expected one of"
            f" {', '.join(measures(statistic))}"
        )
    if statistic.top_by != COUNT and not statistic.top:
        raise ConfigError(f"{place}.top_by = {statistic.top_by!r}: expected top as well")
    if duplicate := _duplicate(columns(statistic)):
        raise ConfigError(f"{place}: two of its columns would be called {duplicate}")


def check_abuse(config: AbuseConfig) -> AbuseConfig:
    """Raise ConfigError unless there are limits or baselines, of existing fields."""
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
    return config


def check_audit(config: AuditConfig) -> AuditConfig:
    """Raise ConfigError unless the configuration says what is compared with what."""
    _check_source(config.source)
    if bool(config.copy.archive) == bool(config.copy.bootstrap):
        raise ConfigError("set either copy.archive or copy.bootstrap, to say what is compared")
    if config.copy.security.stated and not config.copy.bootstrap:
        raise ConfigError("copy.security: expected copy.bootstrap as well")
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
    originals(config.source.topics, config)
    for key, default in (("starting", Source().starting), ("batch_records", 0)):
        if getattr(config.source, key) != default:
            raise ConfigError(f"source.{key}: an audit reads all records at once")
    return config


def originals(topics: Iterable[str], config: AuditConfig) -> dict[str, str]:
    """The topics of an audit, by their names in the copy.

    Raises ConfigError if two topics have the same copy, or a topic is its own copy.
    """
    names = dict(config.copy.topics)
    found: dict[str, str] = {}
    for topic in topics:
        there = names.get(topic, topic)
        if there in found:
            raise ConfigError(f"copy.topics: {there} would be the copy of {found[there]} as well")
        if there == topic and config.copy.bootstrap == config.bootstrap:
            raise ConfigError(f"copy.bootstrap = {config.bootstrap!r}: {topic} is its own copy")
        found[there] = topic
    return found


def _duplicate(names: Iterable[str]) -> str | None:
    """A name that occurs twice, ignoring case; or None."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            return name
        seen.add(name.lower())
    return None


def _check_source(source: Source) -> None:
    if bool(source.topics) == bool(source.pattern):
        raise ConfigError("set either source.topics or source.pattern, to say what is read")


def _check_lines(lines: Lines) -> None:
    if lines.format != JSON:
        given = {"fields": lines.fields, "time": lines.time, "time_format": lines.time_format}
        for key, value in given.items():
            if value not in ((), "", ISO):
                raise ConfigError(f"lines.{key}: only lines of format json have one")
        return
    if not lines.fields:
        raise ConfigError('lines.fields is missing: expected a table, such as {status = "int"}')
    names = [name for name, _ in lines.fields]
    for name in names:
        if name.lower() in _TAKEN:
            raise ConfigError(f"lines.fields.{name}: this name is reserved")
    if duplicate := _duplicate(names):
        raise ConfigError(f"lines.fields.{duplicate}: it is there twice, as Spark ignores case")
    if lines.time:
        _check_fields("lines.time", (lines.time,), lines)
    elif lines.time_format != ISO:
        raise ConfigError(f"lines.time_format = {lines.time_format!r}: expected lines.time as well")


def _check_fields(place: str, fields: Iterable[str], lines: Lines) -> None:
    known = [name for name, _ in lines.fields] if lines.format == JSON else [*ACCESS_LOG_FIELDS]
    known += RECORD_FIELDS
    for field in fields:
        if field.partition(".")[0] not in known:
            raise ConfigError(f"{place}: there is no field {field}; there are {', '.join(known)}")


def _check_output(config: Pipeline, output: Output) -> None:
    if output.topic and output.path:
        raise ConfigError("output.topic and output.path: set one of them, or neither")
    if output.bootstrap and not output.topic:
        raise ConfigError("output.bootstrap: expected output.topic as well")
    if output.security.stated and not output.bootstrap:
        raise ConfigError("output.security: expected output.bootstrap as well")
    here = output.bootstrap in {"", config.bootstrap}
    source = config.source
    reads = output.topic in source.topics or re.fullmatch(source.pattern, output.topic)
    if output.topic and here and reads:
        raise ConfigError(f"output.topic = {output.topic!r}: the source reads that topic")
    if output.options and not output.topic:
        raise ConfigError("output.options: expected output.topic as well")
