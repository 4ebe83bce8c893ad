"""From lines to alerts: sliding windows of each client, compared with limits and baselines.

Lines are first summed in panes as long as the slide, so that each line is counted once however much
windows overlap; a window is the sum of its panes. A *span* holds all that a test of a window needs:
the window, the one before it, and the past of both.
"""

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ..config import AbuseConfig
from ..config.checks import EVENT_TIME
from ..parsing import check_numbers, only
from ..times import interval
from .usage import BEFORE, NOW, Usage, usages
from .verdict import is_unusual, may_be_unusual, own_rate, reasons

_PANE, _AT, SPAN = "pane", "at", "span"


def alerts(lines: DataFrame, config: AbuseConfig) -> DataFrame:
    """A row with the reasons for each client and window in which it used too much.

    lines: from :func:`~..parsing.well_formed`.

    Raises :class:`~qbus.errors.ConfigError` if the field of bytes is not a number, or ``where`` is
    not an expression.
    """
    spans = _spans(_panes(lines, config), config)
    suspects = _suspects(spans, config)
    judged = suspects.select(
        "*",
        reasons(NOW, config).alias("reasons"),
        (sql.size(reasons(BEFORE, config)) > 0).alias("ongoing"),
    )
    found = judged.where(sql.size("reasons") > 0)
    if not config.repeat:
        found = found.where(~sql.col("ongoing"))
    return found.select(*_columns(config))


def _panes(lines: DataFrame, config: AbuseConfig) -> DataFrame:
    """The usage of each client in each pane."""
    check_numbers(lines, "bytes", [config.bytes])
    client = sql.col(config.client).cast("string")
    wanted = client.isNotNull()
    if config.exempt:
        patterns = "|".join(_pattern(glob) for glob in config.exempt)
        wanted &= ~client.rlike(f"^(?:{patterns})$")
    lines = lines.withWatermark(EVENT_TIME, interval(config.watermark))
    panes = (
        only(lines, config.where, wanted)
        .groupBy(
            sql.window(EVENT_TIME, interval(config.slide)).alias(_PANE), client.alias("client")
        )
        .agg(
            sql.count(sql.lit(1)).alias("requests"),
            sql.coalesce(sql.sum(sql.col(config.bytes).try_cast("bigint")), sql.lit(0)).alias(
                "bytes"
            ),
        )
    )
    return panes.select("client", "requests", "bytes", sql.window_time(_PANE).alias(_AT))


def _spans(panes: DataFrame, config: AbuseConfig) -> DataFrame:
    """The usage of each client in the windows of each span."""
    past = config.baseline.history if config.baseline.own_factor else 0
    length = config.window + config.slide + past
    within = panes.select(
        "*", sql.window(_AT, interval(length), interval(config.slide)).alias(SPAN)
    )
    end, at = sql.col(f"{SPAN}.end"), sql.col(_AT)
    return within.groupBy(SPAN, "client").agg(
        *(column for usage in usages(config) for column in usage.columns(at, end))
    )


def _suspects(spans: DataFrame, config: AbuseConfig) -> DataFrame:
    """The clients of each span that may get an alert, with the peers' percentiles.

    A client above one that exceeds its peers exceeds them as well, so that the largest clients by
    each measure are enough. Clients that exceed other limits come before them.
    """
    row = sql.struct("client", *(name for usage in usages(config) for name in usage.names))
    certain, possible = is_unusual(config), may_be_unusual(config)
    most = [
        sql.max_by(
            row,
            sql.when(certain | possible, sql.struct(certain, f"{NOW}_{what}", "client")),
            config.candidates,
        )
        for what in Usage.MEASURES
    ]
    suspects = sql.array_union(*most).alias("suspects")
    per_span = spans.groupBy(SPAN).agg(suspects, *_peers(config))
    peers = [name for name in per_span.columns if name.startswith("peers_")]
    each = per_span.select(SPAN, *peers, sql.explode("suspects").alias("row"))
    return each.select(SPAN, *peers, "row.*")


def _peers(config: AbuseConfig) -> list[Column]:
    """The percentile of all active clients, in this window and the one before."""
    fraction = config.baseline.peers_percentile
    return [
        sql.percentile_approx(
            sql.when(sql.col(f"{which}_requests") > 0, sql.col(f"{which}_{what}")), fraction
        ).alias(f"peers_{which}_{what}")
        for which in (NOW, BEFORE)
        for what in Usage.MEASURES
    ]


def _columns(config: AbuseConfig) -> list[Column]:
    end = sql.col(f"{SPAN}.end")
    seconds = config.window / 1000
    columns = [
        (end - sql.expr(f"interval {config.window} milliseconds")).alias("window_start"),
        end.alias("window_end"),
        sql.col("client"),
        sql.col("reasons"),
        sql.col("ongoing"),
    ]
    for what in Usage.MEASURES:
        now = sql.col(f"{NOW}_{what}")
        columns += [now.alias(what), (now / seconds).alias(f"{what}_per_second")]
    if config.baseline.own_factor:
        columns += [own_rate(NOW, what).alias(f"own_{what}_per_second") for what in Usage.MEASURES]
    if config.baseline.peers_factor:
        columns += [
            (sql.col(f"peers_{NOW}_{what}") / seconds).alias(f"peers_{what}_per_second")
            for what in Usage.MEASURES
        ]
    return columns


def _pattern(glob: str) -> str:
    """The Java regular expression of a glob with ``*`` and ``?``."""
    return "".join({"*": ".*", "?": "."}.get(char) or re.escape(char) for char in glob)
