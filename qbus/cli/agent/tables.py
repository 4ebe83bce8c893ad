"""Tables of agents and their files."""

from typing import TYPE_CHECKING

from qbus.cli.output import Document, Remark, table
from qbus.cli.units import format_seconds, format_size

if TYPE_CHECKING:
    from rich.console import RenderableType


def status_table(statuses: list[Document]) -> "RenderableType":
    """How far each agent is, and what it did; their errors below."""
    from rich.console import Group

    if not statuses:
        return Remark("No agent is connected.")
    progress = table(
        "agent",
        "host",
        "#files",
        "#failed",
        "#lag",
        "#behind",
        "#rate",
        rows=map(_progress, statuses),
    )
    work = table("agent", "#records", "#in spools", "configuration", rows=map(_work, statuses))
    troubles = [trouble for status in statuses for trouble in _troubles(status)]
    return Group(progress, "", work, *troubles)


def file_tables(documents: list[Document]) -> "RenderableType":
    """A table of files for each agent."""
    from rich.console import Group

    if not documents:
        return Remark("No agent is connected.")
    return Group(*map(_files, documents))


def _name(document: Document) -> str:
    name: str = document["name"]
    return name if document["running"] else f"{name} (not running)"


def _progress(status: Document) -> list[object]:
    totals = status["totals"]
    return [
        _name(status),
        status["host"],
        totals["files"],
        totals["failed"],
        format_size(totals["lag_bytes"]),
        format_seconds(totals["lag_seconds"]),
        f"{format_size(totals['rate'])}/s",
    ]


def _work(status: Document) -> list[object]:
    totals, configuration = status["totals"], status["configuration"]
    in_force = configuration["in_force"]
    if in_force is not None and configuration["version"] >= 0:
        in_force += f" v{configuration['version']}"
    return [status["name"], totals["records"], format_size(totals["spool_bytes"]), in_force]


def _troubles(status: Document) -> list[str]:
    configuration, name = status["configuration"], status["name"]
    troubles = []
    if configuration["refused"] is not None:
        version = configuration["refused_version"]
        which = configuration["refused"] + (f" v{version}" if version >= 0 else "")
        troubles.append(f"{name}: {which} is rejected: {configuration['reason']}")
    elif configuration["reason"] is not None:
        troubles.append(f"{name}: {configuration['reason']}")
    if status["error"] is not None:
        troubles.append(f"{name}: {status['error']}")
    if refused := status["totals"].get("refused"):
        troubles.append(f"{name}: {refused} records are set aside, too large for their topics")
    for spool in status["spools"]:
        if spool["error"] is not None:
            troubles.append(f"{name}: spool {spool['directory']}: {spool['error']}")
        if spool["damaged"]:
            troubles.append(f"{name}: {spool['damaged']} damaged files were quarantined")
    return troubles


def _files(document: Document) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    rows = (
        [
            _printable(file["path"]),
            file["topic"],
            file["state"],
            format_size(file["lag_bytes"]),
            format_seconds(file["lag_seconds"]),
            f"{format_size(file['rate'])}/s",
        ]
        for file in document["files"]
    )
    files = table(
        "file",
        "topic",
        "state",
        "#lag",
        "#behind",
        "#rate",
        rows=rows,
        title=_name(document),
    )
    errors = [
        Text(f"{_printable(file['path'])}: {file['error']}")
        for file in document["files"]
        if file["error"] is not None
    ]
    errors += [
        Text(f"{_printable(file['path'])}: {file['refused']} set aside; last: {file['refusal']}")
        for file in document["files"]
        if file.get("refused")
    ]
    left_out = document["files_left_out"]
    rest = [Text(f"{left_out} more files, none of them worse than these.")] if left_out else []
    return Group(files, *errors, *rest)


def _printable(path: str) -> str:
    return path.encode(errors="replace").decode()
