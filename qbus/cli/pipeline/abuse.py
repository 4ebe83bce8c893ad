"""`qbus pipeline abuse`."""

from pathlib import Path

import click

from qbus.cli.pipeline.options import common, results, source, streaming


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
@results
@streaming
@common
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
    form: str | None,
    fields: tuple[tuple[str, str], ...],
    time: str | None,
    time_format: str | None,
    to_topic: str | None,
    to_path: str | None,
    batch: bool,
    starting: str | None,
    checkpoint: str | None,
    interval: str | None,
    once: bool,
    config_file: Path | None,
    topics: tuple[str, ...],
    pattern: str | None,
    bootstrap: str | None,
    master: str,
    settings: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Find clients that take more than they should, in sliding windows.

    What is too much: fixed limits, a multiple of a client's own past, a multiple of what its peers
    take; any of these. Alerts go to the console, a topic, or Parquet.
    """
    from qbus.cli.pipeline.running import mode_of, run_pipeline

    chosen = {
        **source(topics, pattern, bootstrap),
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
        "lines.format": form,
        "lines.fields": dict(fields),
        "lines.time": time,
        "lines.time_format": time_format,
        "output.topic": to_topic,
        "output.path": to_path,
        "source.starting": starting,
        "checkpoint": checkpoint,
        "interval": interval,
    }
    run_pipeline(
        "abuse",
        config_file=config_file,
        chosen=chosen,
        master=master,
        settings=settings,
        as_json=as_json,
        mode=mode_of(
            once=once, batch=batch, starting=starting, checkpoint=checkpoint, interval=interval
        ),
    )
