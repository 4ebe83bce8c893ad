"""`qbus pipeline stats`."""

import click

from qbus.cli.pipeline import options
from qbus.cli.pipeline.options import Common, Results, Schedule


@click.command()
@click.option("--name", metavar="NAME", help="What the statistic is called. Default: lines.")
@click.option("--window", metavar="DURATION", help="How long a window is. Default: 1 minute.")
@click.option("--slide", metavar="DURATION", help="From one window to the next. Default: a window.")
@click.option(
    "--watermark", metavar="DURATION", help="How late lines may come. Default: 10 minutes."
)
@click.option("--where", metavar="SQL", help="Which lines count, as 'status >= 500'.")
@click.option("--by", multiple=True, metavar="FIELD", help="A row for each of its values.")
@click.option("--sum", "sums", multiple=True, metavar="FIELD", help="Add it up.")
@click.option("--mean", "means", multiple=True, metavar="FIELD", help="Average it.")
@click.option("--min", "least", multiple=True, metavar="FIELD", help="Give its least.")
@click.option("--max", "most", multiple=True, metavar="FIELD", help="Give its most.")
@click.option("--distinct", multiple=True, metavar="FIELD", help="Count its different values.")
@click.option("--percentiles-of", multiple=True, metavar="FIELD", help="Give its percentiles.")
@click.option(
    "--percentile",
    "percentiles",
    type=click.FloatRange(0, 1),
    multiple=True,
    metavar="P",
    help="Which. Default: 0.5, 0.95, 0.99.",
)
@click.option(
    "--exact-percentiles", is_flag=True, help="Interpolate them from all values, in more memory."
)
@click.option("--top", type=click.IntRange(1), metavar="N", help="Only the N rows with the most.")
@click.option("--top-by", metavar="COLUMN", help="The most of what. Default: count.")
@options.results
@options.schedule
@options.common
def stats(
    *,
    name: str | None,
    window: str | None,
    slide: str | None,
    watermark: str | None,
    where: str | None,
    by: tuple[str, ...],
    sums: tuple[str, ...],
    means: tuple[str, ...],
    least: tuple[str, ...],
    most: tuple[str, ...],
    distinct: tuple[str, ...],
    percentiles_of: tuple[str, ...],
    percentiles: tuple[float, ...],
    exact_percentiles: bool,
    top: int | None,
    top_by: str | None,
    results: Results,
    schedule: Schedule,
    common: Common,
) -> None:
    """Count, rate and rank lines, window by window: to the console, a topic, or Parquet.

    Options that describe a statistic make one, called NAME, instead of those in FILE. FIELDs of
    access logs: address, user, method, path, status, bytes, referer, agent, and more. Options with
    a FIELD may be repeated.
    """
    from qbus.cli.pipeline.running import run_pipeline

    described = options.stated(
        {
            "name": name,
            "window": window,
            "slide": slide,
            "watermark": watermark,
            "where": where,
            "by": by,
            "sum": sums,
            "mean": means,
            "min": least,
            "max": most,
            "distinct": distinct,
            "percentiles_of": percentiles_of,
            "percentiles": percentiles,
            "exact_percentiles": exact_percentiles or None,
            "top": top,
            "top_by": top_by,
        }
    )
    chosen = {
        **results.stated(),
        **schedule.stated(),
    }
    if described or common.config_file is None:
        chosen["statistic"] = [{"name": "lines", **described}]
    run_pipeline("stats", common, chosen, schedule.mode(batch=results.batch))
