"""`qbus pipeline file`."""

import click


@click.command()
@click.argument("name", type=click.Choice(["archive", "stats", "abuse", "audit"]))
def file(name: str) -> None:
    """Print the path of pipeline NAME's file, for spark-submit.

    As in: spark-submit "$(qbus pipeline file stats)" --config stats.toml
    """
    from pathlib import Path

    from qbus.clients import pipelines as jobs

    click.echo(Path(jobs.__file__).parent / "submit" / f"{name}.py")
