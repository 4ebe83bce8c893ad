"""`qbus pipeline`: archive, stats, abuse, audit, file."""

import click

from qbus.cli.lazy import Entry, LazyGroup

_COMMANDS = {
    "archive": Entry("pipeline.archive:archive", "Archive topics as Parquet, by date and hour."),
    "stats": Entry("pipeline.stats:stats", "Count, rate and rank lines by window."),
    "abuse": Entry("pipeline.abuse:abuse", "Find clients that use more than they should."),
    "audit": Entry("pipeline.audit:audit", "Compare topics with their archive or their copy."),
    "file": Entry("pipeline.command:file", "Print the path of the file for spark-submit."),
}


@click.group(cls=LazyGroup, entries=_COMMANDS)
def pipeline() -> None:
    """Run a pipeline on Spark: archive, statistics, abuse detection or audit.

    Pipelines need the extra 'spark' (pip install 'qbus[spark]') and Java 17 or later.
    """


@click.command()
@click.argument("name", type=click.Choice(["archive", "stats", "abuse", "audit"]))
def file(name: str) -> None:
    """Print the path of the file of pipeline NAME for spark-submit.

    Use it so: spark-submit "$(qbus pipeline file stats)" --config stats.toml
    """
    from pathlib import Path

    from qbus.clients import pipelines

    click.echo(Path(pipelines.__file__).parent / "submit" / f"{name}.py")
