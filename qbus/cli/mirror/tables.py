"""Tables of mirrors and of copied group offsets."""

from typing import TYPE_CHECKING

from qbus.cli.output import Document, table
from qbus.cli.units import format_seconds, format_size

if TYPE_CHECKING:
    from rich.console import RenderableType


def status_tables(document: Document) -> "RenderableType":
    """A line for each partition of each link, the processes of the links, and all errors."""
    from rich.console import Group

    links, processes = document["links"], document["processes"]
    rows = [_row(link, partition) for link in links for partition in link["partitions"]]
    partitions = table(
        "link",
        "topic",
        "target",
        "#partition",
        "state",
        "#lag",
        "#bytes",
        "#behind",
        rows=rows,
    )
    parts: list[RenderableType] = []
    if rows:
        parts.append(partitions)
    elif all(link["error"] is None for link in links):
        parts.append("Nothing is mirrored.")
    if processes:
        parts.append(_processes(processes))
    parts += [trouble for link in links for trouble in _troubles(link)]
    parts += [trouble for process in processes for trouble in _of_process(process)]
    return Group(*parts)


def carried_table(carried: list[Document]) -> "RenderableType":
    """A line for each offset that was committed, and for each group that was skipped."""
    rows = []
    for group in carried:
        head = [group["link"], group["group"]]
        rows += [
            [*head, at["topic"], at["partition"], at["offset"], None] for at in group["offsets"]
        ]
        if group["skipped"] is not None:
            rows.append([*head, None, None, None, group["skipped"]])
    if not rows:
        return "All offsets are up to date."
    return table("link", "group", "topic", "#partition", "#offset", "skipped", rows=rows)


def _row(link: Document, partition: Document) -> list[object]:
    lag_bytes, lag_s = partition["lag_bytes"], partition["lag_seconds"]
    return [
        link["name"],
        partition["topic"],
        partition["target_topic"],
        partition["partition"],
        partition["state"],
        partition["lag_records"],
        None if lag_bytes is None else format_size(lag_bytes),
        None if lag_s is None else format_seconds(lag_s),
    ]


def _processes(processes: list[Document]) -> "RenderableType":
    return table(
        "process",
        "link",
        "#partitions",
        "#records",
        "#bytes",
        "#group offsets",
        "configuration",
        rows=(
            [
                process["process"],
                link["name"],
                link["totals"]["partitions"],
                link["totals"]["records"],
                format_size(link["totals"]["bytes"]),
                link["groups"]["offsets"],
                f"v{process['configuration']['version']}",
            ]
            for process in processes
            for link in process["links"]
        ),
    )


def _troubles(link: Document) -> list[str]:
    troubles = [] if link["error"] is None else [f"{link['name']}: {link['error']}"]
    if link["reproduces"]:
        troubles.append(
            f"{link['name']}: the target is not Qbus: records are produced again, at other offsets,"
            " and group offsets are not copied; the offsets shown are those of the source"
        )
    return troubles + [
        f"{link['name']}: {partition['topic']}-{partition['partition']}: {partition['error']}"
        for partition in link["partitions"]
        if partition["error"] is not None
    ]


def _of_process(process: Document) -> list[str]:
    name, configuration = process["process"], process["configuration"]
    troubles = [
        f"{name}: {link['name']}: {error}"
        for link in process["links"]
        for error in (link["error"], link["groups"]["error"])
        if error is not None
    ]
    if configuration["reason"] is not None:
        troubles.append(f"{name}: the configuration: {configuration['reason']}")
    return troubles
