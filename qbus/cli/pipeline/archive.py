"""`qbus pipeline archive`."""

import click

from qbus.cli.pipeline import options
from qbus.cli.pipeline.options import Common, Schedule


@click.command()
@click.option("--path", metavar="DIR", help="The archive: a directory, or a URL that Spark takes.")
@click.option("--time-zone", metavar="ZONE", help="Whose dates and hours. Default: UTC.")
@click.option("--compact", is_flag=True, help="Only make small files large, and stop.")
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
    """Keep topics as Parquet files, by date and hour, each record once.

    Until Ctrl-C or SIGTERM. Read the archive with spark.read.parquet(DIR): its log, in DIR, says
    which files count. With --compact, only DIR has to be named.
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
