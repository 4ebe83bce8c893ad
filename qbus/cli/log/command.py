"""`qbus log salvage`: set batches aside that cannot be read."""

from pathlib import Path

import click

from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import json_option


@click.group(cls=OrderedGroup)
def log() -> None:
    """Work on the logs in the data directory of a stopped broker."""


@log.command()
@click.argument(
    "data_dir", type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path)
)
@click.argument("partitions", nargs=-1, metavar="[TOPIC-PARTITION]...")
@click.option("--execute", is_flag=True, help="Do it; without this, only show what would be done.")
@click.option(
    "--save-to",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the damaged bytes go; salvaged below DATA_DIR if it is not given.",
)
@json_option
@click.pass_context
def salvage(
    context: click.Context,
    /,
    *,
    data_dir: Path,
    partitions: tuple[str, ...],
    execute: bool,
    save_to: Path | None,
    as_json: bool,
) -> None:
    """Set damaged batches aside, so that their partitions can be read without errors.

    The logs of the partitions in DATA_DIR, or of all, are read and checked. With --execute the
    bytes of each damaged batch are saved in a file, and an empty batch takes their place: the
    records in it are gone for readers, all other records and all offsets stay. Stop the broker
    first.

    This is for partitions without another replica. Where another broker has the records, leave the
    log as it is and start the broker: it fetches them. The exit code is 1 if there is damage that
    was not set aside.
    """
    from qbus.cli.log.salvaging import Salvage, shown
    from qbus.cli.output import emit

    saved = save_to or data_dir / "salvaged"
    documents = Salvage(data_dir, saved, execute=execute).run(partitions)
    emit(documents, lambda found: shown(found, execute=execute), as_json=as_json)
    if any(not one["salvaged"] for one in documents):
        context.exit(1)
