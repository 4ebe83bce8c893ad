"""From a command line to a pipeline that runs here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from qbus.cli.output import emit
from qbus.cli.pipeline.options import end_by_sigterm, stated
from qbus.cli.session import ensure_reachable


def run_pipeline(
    name: str,
    *,
    config_file: Path | None,
    chosen: dict[str, Any],
    master: str,
    settings: tuple[tuple[str, str], ...],
    as_json: bool,
    mode: str = "stream",
) -> Any:
    """Run a pipeline to its end, with its progress; what it gives.

    mode: as :class:`~qbus.clients.pipelines.run.Mode` has them.
    """
    import asyncio
    from dataclasses import asdict

    from qbus.cli.pipeline.watcher import Terminal
    from qbus.clients.pipelines.config import load
    from qbus.clients.pipelines.launch import launch
    from qbus.clients.pipelines.run import Mode, PipelineRun

    config = load(name, config_file, stated(chosen))
    for bootstrap in [] if name == "compact" else _clusters(config):
        asyncio.run(ensure_reachable(bootstrap))
    end_by_sigterm()
    with Terminal(as_json=as_json) as terminal:
        run = PipelineRun(Mode(mode), terminal, _state_directory(name))
        found = launch(name, config, run, master=master, settings=dict(settings))
    if name == "compact":
        emit({"replaced": found}, lambda _: f"{found:,} files were replaced.", as_json=as_json)
    elif name != "audit" and found:
        documents = [
            {key: value for key, value in asdict(tally).items() if not key.startswith("_")}
            for tally in found
        ]
        shows_rows = hasattr(config, "output") and not (config.output.topic or config.output.path)
        if not (as_json and shows_rows):
            emit(documents, lambda _: _summaries(found), as_json=as_json)
    return found


def mode_of(*, once: bool, batch: bool = False, interval: str | None, **given: object) -> str:
    """The mode that options choose; a usage error for two.

    interval: the option of that name, which means nothing where there is an end.
    given: options by their names, those that mean nothing with ``--batch``, and their values.
    """
    if once and batch:
        raise click.UsageError("--once or --batch: name one of them.")
    if batch:
        refuse("--batch", {**given, "interval": interval})
    if once:
        refuse("--once", {"interval": interval})
    return "batch" if batch else "once" if once else "stream"


def refuse(chosen: str, given: Mapping[str, object]) -> None:
    """A usage error where options are given that mean nothing beside another one.

    given: options by their names, and their values; None and False: not given.
    """
    for name, value in given.items():
        if value:
            raise click.UsageError(f"--{name}: means nothing with {chosen}.")


def _clusters(config: Any) -> list[str]:
    """Where the clusters are that a pipeline needs."""
    others = (getattr(config, table, None) for table in ("output", "copy"))
    return [config.bootstrap, *(one.bootstrap for one in others if one and one.bootstrap)]


def _summaries(tallies: list[Any]) -> str:
    from qbus.clients.pipelines.submitted import summary

    return "\n".join(summary(tally) for tally in tallies)


def _state_directory(name: str) -> str:
    import os

    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return f"{state}/qbus/pipelines/{name}"
