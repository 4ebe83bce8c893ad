"""`qbus pipeline archive`."""

from pathlib import Path

import click

from qbus.cli.pipeline.options import common, source, streaming


@click.command()
@click.option("--path", metavar="DIR", help="The archive: a directory, or a URL that Spark takes.")
@click.option("--time-zone", metavar="ZONE", help="Whose dates and hours. Default: UTC.")
@click.option("--compact", is_flag=True, help="Only make small files large, and stop.")
@streaming
@common
def archive(
    *,
    path: str | None,
    time_zone: str | None,
    compact: bool,
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
    """Keep topics as Parquet files, by date and hour, each record once.

    Until Ctrl-C or SIGTERM. Read the archive with spark.read.parquet(DIR): its log, in DIR, says
    which files count. With --compact, only DIR has to be named.
    """
    from qbus.cli.pipeline.running import mode_of, refuse, run_pipeline

    if compact:
        unused = {"topic": topics, "pattern": pattern, "checkpoint": checkpoint, "once": once}
        refuse("--compact", {**unused, "starting": starting, "interval": interval})
    chosen = {
        **source(topics, pattern, bootstrap),
        "path": path,
        "time_zone": time_zone,
        "source.starting": starting,
        "checkpoint": checkpoint,
        "interval": interval,
    }
    run_pipeline(
        "compact" if compact else "archive",
        config_file=config_file,
        chosen=chosen,
        master=master,
        settings=settings,
        as_json=as_json,
        mode=mode_of(once=once, interval=interval),
    )
