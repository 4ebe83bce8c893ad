"""Tables of queues and of jobs."""

from typing import TYPE_CHECKING, Any

from qbus.cli.output import table
from qbus.cli.topic.tables import held_back
from qbus.cli.units import format_moment, format_seconds, format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN = 60


def queues_table(queues: list[dict[str, Any]]) -> "RenderableType":
    """One line for each queue."""
    if not queues:
        return "The group has taken no jobs yet: name a QUEUE to see what waits there."
    return table(
        "queue",
        "#waiting",
        "#in work",
        "#delayed",
        "#given up",
        "#oldest",
        "#given out",
        "#done",
        "#given back",
        "#timed out",
        "#dead letters",
        rows=(
            (
                one["queue"],
                one["length"],
                one["in_flight"],
                one["delayed"],
                one["given_up"],
                None if one["oldest_ms"] is None else format_seconds(one["oldest_ms"] / 1000),
                one["taken"],
                one["acknowledged"],
                one["released"],
                one["timeouts"],
                one["dead_letters"],
            )
            for one in queues
        ),
    )


def settings_table(document: dict[str, Any]) -> "RenderableType":
    """One line for each setting."""
    settings = document["settings"]
    limit, letters = settings["delivery_limit"], settings["dead_letters"]
    shown = (
        ("deliveries at most", limit, limit["value"] or "no limit"),
        *(
            (name, settings[key], format_seconds(settings[key]["value"] / 1000))
            for name, key in (("back-off", "backoff_ms"), ("back-off at most", "backoff_max_ms"))
        ),
        ("dead letters", letters, letters["value"] or "dropped"),
        ("deleted when idle for", {"from": "queue"}, _idle(document["idle_ms"])),
    )
    return table(
        "setting",
        "value",
        "set by",
        rows=((name, text, _origin(setting["from"], document)) for name, setting, text in shown),
        whole=("setting", "value", "set by"),
    )


def _idle(limit_ms: int) -> str:
    return "never" if limit_ms < 0 else format_seconds(limit_ms / 1000)


def _origin(source: str, document: dict[str, Any]) -> str:
    return "the queue" if source == "queue" else f"group {document['group']}"


def jobs_table(document: dict[str, Any]) -> "RenderableType":
    """One line for each job."""
    from rich.console import Group

    jobs, pending = document["jobs"], document["delayed"]
    waits = f"{document['queue']}: {held_back(pending, document['next_due'])}"
    if not jobs:
        return waits if pending else f"All jobs of {document['queue']} are done."
    listed = table(
        "id",
        "added",
        "#size",
        "body",
        rows=(
            (job["id"], format_moment(job["added"]), format_size(job["size"]), _short(job["body"]))
            for job in jobs
        ),
        whole=("id", "added"),
    )
    return Group(listed, waits) if pending else listed


def _short(body: str) -> str:
    line = " ".join(body.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."
