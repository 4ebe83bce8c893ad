"""`qbus pipeline`: archive, stats, abuse, audit, file."""

import click

from qbus.cli.lazy import Entry, LazyGroup

_COMMANDS = {
    "archive": Entry("pipeline.archive:archive", "Keep topics as Parquet, by date and hour."),
    "stats": Entry("pipeline.stats:stats", "Count, rate and rank lines, window by window."),
    "abuse": Entry("pipeline.abuse:abuse", "Find clients that take more than they should."),
    "audit": Entry("pipeline.audit:audit", "Compare topics with their archive, or their copy."),
    "file": Entry("pipeline.command:file", "Print where the file for spark-submit is."),
}


@click.group(cls=LazyGroup, entries=_COMMANDS)
def pipeline() -> None:
    """Run pipelines on Spark: an archive, statistics, abuse detection, an audit.

    They need the extra 'spark' (pip install 'qbus[spark]') and Java 17 or later.
    """


@click.command()
@click.argument("name", type=click.Choice(["archive", "stats", "abuse", "audit"]))
def file(name: str) -> None:
    """Print the path of pipeline NAME's file, for spark-submit.

    As in: spark-submit "$(qbus pipeline file stats)" --config stats.toml
    """
    from pathlib import Path

    from qbus.clients import pipelines as jobs

    click.echo(Path(jobs.__file__).parent / "submit" / f"{name}.py")
