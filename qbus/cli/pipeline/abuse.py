"""`qbus pipeline abuse`."""

import click

from qbus.cli.pipeline import options
from qbus.cli.pipeline.options import Common, Results, Schedule


@click.command()
@click.option("--max-requests", type=click.IntRange(1), metavar="N", help="Of a client, a window.")
@click.option("--max-bytes", type=click.IntRange(1), metavar="N", help="To a client, a window.")
@click.option(
    "--own-factor",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help="Alert at more than X times a client's own past rate.",
)
@click.option(
    "--peers-factor",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help="Alert at more than X times what 95% of all clients take at most.",
)
@click.option("--client", metavar="FIELD", help="What tells clients apart. Default: address.")
@click.option(
    "--exempt", multiple=True, metavar="CLIENT", help="May do anything, as '10.0.*'; repeatable."
)
@click.option("--window", metavar="DURATION", help="How long a window is. Default: 5 minutes.")
@click.option("--slide", metavar="DURATION", help="Between windows. Default: 1 minute.")
@click.option("--watermark", metavar="DURATION", help="How late may lines be. Default: 2 minutes.")
@click.option("--repeat", is_flag=True, help="Alert in every window, not only when it begins.")
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
    """Find clients that take more than they should, in sliding windows.

    What is too much: fixed limits, a multiple of a client's own past, a multiple of what its peers
    take; any of these. Alerts go to the console, a topic, or Parquet.
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
