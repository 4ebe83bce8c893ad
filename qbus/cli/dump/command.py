"""`qbus dump-log`: read files and print their entries."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qbus.cli.options import json_option

if TYPE_CHECKING:
    from qbus.cli.dump.entries import Entry


@click.command("dump-log")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE...",
    type=click.Path(exists=True, readable=True, path_type=Path),
)
@click.option("--records", is_flag=True, help="Show the records of each batch too.")
@click.option("--problems", "only_problems", is_flag=True, help="Show only entries with problems.")
@click.option("--gaps", is_flag=True, help="Accept missing offsets.")
@json_option
@click.pass_context
def dump_log(
    context: click.Context,
    /,
    *,
    files: tuple[Path, ...],
    records: bool,
    only_problems: bool,
    gaps: bool,
    as_json: bool,
) -> None:
    """Show the contents of each FILE of a log, and its problems.

    FILE is a segment (.log), an index (.index, .timeindex, .controlindex), a snapshot of producers
    (.snapshot) or of what is held back (.control), a log-manifest, a checkpoint, or a directory,
    which means all of its files: of one partition, or a broker's data directory with those of all
    its partitions. The command only reads and does not disturb a running broker. The exit code is 1
    if there are problems, 4 if the files have no entry to check. --gaps is for mirrors, which have
    the gaps of their sources; logs that their broker compacted need it only apart from its data
    directory. --json prints one object per line.
    """
    from qbus.cli.dump.entries import expand, read_entries
    from qbus.cli.failures import NOTHING_CHECKED
    from qbus.cli.output import note

    count = checked = 0
    for path in expand(files):
        entries = read_entries(path, with_records=records, gaps=gaps)
        entries_of, found = _print_file(path, entries, only_problems=only_problems, as_json=as_json)
        checked += entries_of
        count += found
    if not checked:
        note("qbus: nothing was checked: the files have no entries")
        context.exit(NOTHING_CHECKED)
    if count:
        note(f"qbus: {count} problem{'s' * (count != 1)}")
        context.exit(1)


def _print_file(
    path: Path, entries: "Iterable[Entry]", *, only_problems: bool, as_json: bool
) -> tuple[int, int]:
    """Print the entries of one file while reading it; return how many, and how many problems."""
    from qbus.cli.dump.text import heading, line, summary
    from qbus.cli.output import json_line

    if not as_json:
        click.echo(heading(path))
    kinds: Counter[str] = Counter()
    problems = 0
    for entry in entries:
        kinds[entry["type"]] += 1
        problems += len(entry["problems"])
        if only_problems and not entry["problems"]:
            continue
        click.echo(json_line(entry) if as_json else line(entry))
    if not as_json:
        click.echo(summary(kinds, problems))
    return kinds.total(), problems
