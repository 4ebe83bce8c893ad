"""From a command line to a pipeline that runs here."""

from pathlib import Path
from typing import Any

import click

from ..output import emit
from ..session import ensure_reachable
from .options import end_by_sigterm, stated


def run_pipeline(
    name: str,
    *,
    config_file: Path | None,
    chosen: dict[str, Any],
    master: str,
    settings: tuple[tuple[str, str], ...],
    as_json: bool,
    mode: str = "stream",
    runner: str = "",
) -> Any:
    """Run a pipeline to its end, with its progress; what it gives.

    mode: as :class:`~qbus.clients.spark.jobs.modes.Mode` has them.
    runner: what to run, where that is not named as the configuration is.
    """
    import asyncio
    from dataclasses import asdict

    from qbus.clients.spark.jobs.config import PIPELINES, load
    from qbus.clients.spark.jobs.launch import launch
    from qbus.clients.spark.jobs.modes import Mode, Run

    from .watcher import Terminal

    config = load(PIPELINES[name], config_file, stated(chosen))
    if runner != "compact":
        asyncio.run(ensure_reachable(config.bootstrap))
    end_by_sigterm()
    with Terminal(as_json=as_json) as terminal:
        run = Run(Mode(mode), terminal, _state_directory(name))
        found = launch(runner or name, config, run, master=master, settings=dict(settings))
    if name != "audit" and found:
        documents = [
            {key: value for key, value in asdict(tally).items() if not key.startswith("_")}
            for tally in found
        ]
        shows_rows = hasattr(config, "output") and not (config.output.topic or config.output.path)
        if not (as_json and shows_rows):
            emit(documents, lambda _: _summaries(found), as_json=as_json)
    return found


def mode_of(*, once: bool, batch: bool = False) -> str:
    """The mode that options choose; a usage error for two."""
    if once and batch:
        raise click.UsageError("--once or --batch: name one of them.")
    return "batch" if batch else "once" if once else "stream"


def _summaries(tallies: list[Any]) -> str:
    from qbus.clients.spark.jobs.submitted import summary

    return "\n".join(summary(tally) for tally in tallies)


def _state_directory(name: str) -> str:
    import os

    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return f"{state}/qbus/pipelines/{name}"
