"""The report of an audit, for people."""

from typing import TYPE_CHECKING, Any

from qbus.cli.output import table

if TYPE_CHECKING:
    from rich.console import RenderableType

_MOST = 50


def audit_report(document: dict[str, Any]) -> "RenderableType":
    """Which intervals differ, or the partitions where none does."""
    from rich.console import Group

    if document["equal"]:
        equal = (
            f"Equal: {document['records']:,} records in {len(document['partitions'])} partitions,"
            f" {len(document['intervals']):,} intervals."
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
        f"Not equal: {len(unequal):,} of {len(document['intervals']):,} intervals differ.",
        "",
        intervals,
        *([f"... and {more:,} more; --json has them all."] if more > 0 else []),
        "",
        differences,
        *_not_compared(document),
    ]
    return Group(*parts)


def _not_compared(document: dict[str, Any]) -> list[str]:
    left, right = document["skipped_left"], document["skipped_right"]
    if not (left or right):
        return []
    return [
        f"Not compared: {left:,} offsets of the original and {right:,} of the copy that come before"
        " all that the other has."
    ]
