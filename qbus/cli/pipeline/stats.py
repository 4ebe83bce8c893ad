"""`qbus pipeline stats`."""

import click

from qbus.cli.parameters import FloatRange, IntRange
from qbus.cli.pipeline import options
from qbus.cli.pipeline.options import Common, Results, Schedule


@click.command()
@click.option("--name", metavar="NAME", help="Name of the statistic. Default: lines.")
@click.option("--window", metavar="DURATION", help="Length of a window. Default: 1 minute.")
@click.option(
    "--slide", metavar="DURATION", help="Time from one window to the next. Default: its length."
)
@click.option(
    "--watermark", metavar="DURATION", help="How late lines may arrive. Default: 10 minutes."
)
@click.option("--where", metavar="SQL", help="Only lines that match, such as 'status >= 500'.")
@click.option("--by", multiple=True, metavar="FIELD", help="Group by this field.")
@click.option("--sum", "sums", multiple=True, metavar="FIELD", help="Sum of this field.")
@click.option("--mean", "means", multiple=True, metavar="FIELD", help="Mean of this field.")
@click.option("--min", "least", multiple=True, metavar="FIELD", help="Minimum of this field.")
@click.option("--max", "most", multiple=True, metavar="FIELD", help="Maximum of this field.")
@click.option("--distinct", multiple=True, metavar="FIELD", help="Number of distinct values.")
@click.option("--percentiles-of", multiple=True, metavar="FIELD", help="Percentiles of this field.")
@click.option(
    "--percentile",
    "percentiles",
    type=FloatRange(0, 1),
    multiple=True,
    metavar="P",
    help="Percentile to compute. Default: 0.5, 0.95, 0.99.",
)
@click.option(
    "--exact-percentiles",
    is_flag=True,
    help="Interpolate percentiles from all values; needs more memory.",
)
@click.option(
    "--top", type=IntRange(1), metavar="N", help="Only the N rows with the largest values."
)
@click.option("--top-by", metavar="COLUMN", help="Column that ranks rows. Default: count.")
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
    """Count, rate and rank lines by window; results go to the console, a topic, or Parquet.

    Options that describe a statistic define one called NAME and replace those in FILE. FIELDs of
    access logs are address, user, method, path, status, bytes, referer, agent, and more. Options
    with a FIELD may be repeated.
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
