"""`qbus pipeline abuse`."""

import click

from qbus.cli.parameters import FloatRange, IntRange
from qbus.cli.pipeline import options
from qbus.cli.pipeline.options import Common, Results, Schedule


@click.command()
@click.option(
    "--max-requests", type=IntRange(1), metavar="N", help="Limit for a client in a window."
)
@click.option("--max-bytes", type=IntRange(1), metavar="N", help="Limit for a client in a window.")
@click.option(
    "--own-factor",
    type=FloatRange(0, min_open=True),
    metavar="X",
    help="Alert at more than X times a client's own past rate.",
)
@click.option(
    "--peers-factor",
    type=FloatRange(0, min_open=True),
    metavar="X",
    help="Alert at more than X times the 95th percentile of all clients.",
)
@click.option("--client", metavar="FIELD", help="Field that identifies a client. Default: address.")
@click.option(
    "--exempt",
    multiple=True,
    metavar="CLIENT",
    help="No alerts for it, such as '10.0.*'; may be repeated.",
)
@click.option("--window", metavar="DURATION", help="Length of a window. Default: 5 minutes.")
@click.option(
    "--slide", metavar="DURATION", help="Time from one window to the next. Default: 1 minute."
)
@click.option(
    "--watermark", metavar="DURATION", help="How late lines may arrive. Default: 2 minutes."
)
@click.option("--repeat", is_flag=True, help="Alert in every window, not only in the first.")
@options.results
@options.schedule
@options.common
def abuse(
    *,
    max_requests: int | None,
    max_bytes: int | None,
    own_factor: float | None,
    peers_factor: float | None,
    client: str | None,
    exempt: tuple[str, ...],
    window: str | None,
    slide: str | None,
    watermark: str | None,
    repeat: bool,
    results: Results,
    schedule: Schedule,
    common: Common,
) -> None:
    """Find clients that use more than they should, in sliding windows.

    A client is compared with fixed limits, with its own past, and with its peers; one of these
    suffices. Alerts go to the console, a topic, or Parquet.
    """
    from qbus.cli.pipeline.running import run_pipeline

    chosen = {
        "limits.requests": max_requests,
        "limits.bytes": max_bytes,
        "baseline.own_factor": own_factor,
        "baseline.peers_factor": peers_factor,
        "client": client,
        "exempt": exempt,
        "window": window,
        "slide": slide,
        "watermark": watermark,
        "repeat": repeat or None,
        **results.stated(),
        **schedule.stated(),
    }
    run_pipeline("abuse", common, chosen, schedule.mode(batch=results.batch))
