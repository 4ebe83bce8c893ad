"""`qbus pipeline audit`."""

from typing import TYPE_CHECKING, Any

import click

from qbus.cli.output import table
from qbus.cli.parameters import bootstrap as _bootstrap
from qbus.cli.parameters import key_value
from qbus.cli.pipeline import options
from qbus.cli.pipeline.options import Common
from qbus.cli.units import counted

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command()
@click.option("--archive", "path", metavar="DIR", help="Compare with the archive in DIR.")
@click.option(
    "--copy",
    type=_bootstrap,
    metavar="HOST:PORT,...",
    help="Compare with the copy in the cluster of these brokers.",
)
@click.option(
    "--copy-topic",
    "renamed",
    type=key_value,
    multiple=True,
    metavar="TOPIC=NAME",
    help="Name of TOPIC in the copy; may be repeated.",
)
@click.option(
    "--interval", metavar="DURATION", help="Length of the compared intervals. Default: 1 hour."
)
@click.option(
    "--since", metavar="TIME", help="Only records from this time on, such as 2026-03-01T12:00Z."
)
@click.option("--until", metavar="TIME", help="Only records before this time.")
@click.option(
    "--settle", metavar="DURATION", help="Leave out records younger than this. Default: none."
)
@click.option(
    "--offsets-only", is_flag=True, help="Compare offsets only, not the contents of records."
)
@options.common
@click.pass_context
def audit(
    context: click.Context,
    /,
    *,
    path: str | None,
    copy: str | None,
    renamed: tuple[tuple[str, str], ...],
    interval: str | None,
    since: str | None,
    until: str | None,
    settle: str | None,
    offsets_only: bool,
    common: Common,
) -> None:
    """Compare topics with their archive, or with their copy in another cluster.

    Counts records, gaps and duplicates by partition and interval. Exit codes: 0 both are equal,
    3 they differ, 4 no record was compared, 1 the audit failed.
    """
    from qbus.cli.output import emit
    from qbus.cli.pipeline.running import run_pipeline

    chosen = {
        "copy.archive": path,
        "copy.bootstrap": copy,
        "copy.topics": dict(renamed),
        "interval": interval,
        "since": since,
        "until": until,
        "settle": settle,
        "content": False if offsets_only else None,
    }
    report = run_pipeline("audit", common, chosen, "batch")
    emit(report.document(), audit_report, as_json=common.as_json)
    context.exit(report.verdict)


_MOST = 50


def audit_report(document: dict[str, Any]) -> "RenderableType":
    """The intervals that differ, or one line if none does."""
    from rich.console import Group

    if not document["intervals"]:
        nothing = (
            f"Nothing was compared: {counted(len(document['partitions']), 'partition')} without a"
            " record in the chosen time. Check --since, --until and --settle."
        )
        return "\n".join([nothing, *_not_compared(document)])
    if document["equal"]:
        equal = (
            f"Equal: {counted(document['records'], 'record')} in"
            f" {counted(len(document['partitions']), 'partition')},"
            f" {counted(len(document['intervals']), 'interval')}."
        )
        return "\n".join([equal, *_not_compared(document)])
    unequal = [row for row in document["intervals"] if not row["equal"]]
    columns = ("left_count", "right_count", "missing", "extra", "duplicate", "changed")
    gaps = ("gaps_left", "gaps_right")
    intervals = table(
        "Topic", "#Partition", "From", "#Records", "#In the copy", "#Missing", "#Extra",
        "#Twice", "#Changed", "#Gaps", "#Gaps in the copy",
        rows=(
            [row["topic"], row["partition"], row["start"], *(row[key] for key in columns + gaps)]
            for row in unequal[:_MOST]
        ),
    )  # fmt: skip
    differences = table(
        "Topic", "#Partition", "#From offset", "#To", "What",
        rows=(
            [row["topic"], row["partition"], row["begin"], row["end"], row["what"]]
            for row in document["differences"]
        ),
    )  # fmt: skip
    more = len(unequal) - _MOST
    parts: list[RenderableType] = [
        f"Not equal: {len(unequal):,} of {counted(len(document['intervals']), 'interval')} differ.",
        "",
        intervals,
        *([f"... and {more:,} more; --json prints all of them."] if more > 0 else []),
        "",
        differences,
        *_not_compared(document),
    ]
    return Group(*parts)


def _not_compared(document: dict[str, Any]) -> list[str]:
    lines = []
    if document["intervals"] and document["uncompared"]:
        topics = ", ".join(document["uncompared"])
        lines.append(f"Not compared: {topics}, without a record in the chosen time.")
    left, right = document["skipped_left"], document["skipped_right"]
    if left or right:
        lines.append(
            f"Not compared: {left:,} offsets of the original and {right:,} of the copy, which come"
            " before everything that the other side has."
        )
    return lines
