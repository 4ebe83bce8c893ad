"""`qbus pipeline archive`."""

import click

from qbus.cli.pipeline import options
from qbus.cli.pipeline.options import Common, Schedule


@click.command()
@click.option("--path", metavar="DIR", help="Archive: a directory, or a URL that Spark accepts.")
@click.option("--time-zone", metavar="ZONE", help="Time zone of dates and hours. Default: UTC.")
@click.option("--compact", is_flag=True, help="Only merge small files, then stop.")
@options.schedule
@options.common
def archive(
    *,
    path: str | None,
    time_zone: str | None,
    compact: bool,
    schedule: Schedule,
    common: Common,
) -> None:
    """Archive topics as Parquet files by date and hour, each record once.

    Runs until Ctrl-C or SIGTERM. Read the archive with spark.read.parquet(DIR): the log in DIR
    lists the files that belong to it. --compact needs only DIR.
    """
    from qbus.cli.pipeline.running import run_pipeline

    if compact:
        options.refuse(
            "--compact", topic=common.topics, pattern=common.pattern, **schedule._asdict()
        )
    chosen = {
        "path": path,
        "time_zone": time_zone,
        **schedule.stated(),
    }
    run_pipeline(
        "compact" if compact else "archive",
        common,
        chosen,
        schedule.mode(),
    )
