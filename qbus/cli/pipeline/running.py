"""Runs a pipeline in this process, as a command."""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from qbus.cli.failures import TERMINATED, Failure
from qbus.cli.output import emit
from qbus.cli.pipeline.options import Common, stated
from qbus.cli.session import administration, ensure_reachable, similar
from qbus.cli.targets import Target
from qbus.cli.units import counted


def run_pipeline(name: str, common: Common, chosen: dict[str, Any], mode: str = "stream") -> Any:
    """Run a pipeline to its end, show its progress, and return its result.

    chosen: fields of the configuration that options state, beside those of ``common``.
    mode: a value of :class:`~qbus.clients.pipelines.run.Mode`.
    """
    import asyncio
    from dataclasses import asdict

    from qbus.cli.pipeline.watcher import Terminal
    from qbus.clients.pipelines.config import load
    from qbus.clients.pipelines.launch import launch
    from qbus.clients.pipelines.run import Mode, PipelineRun

    config = load(name, common.config_file, stated({**common.stated(), **chosen}))
    if name != "compact":
        targets = _clusters(config)
        for target in targets:
            asyncio.run(ensure_reachable(target))
        asyncio.run(_check_topics(targets[0], config.source.topics))
    _end_by_sigterm()
    with Terminal(as_json=common.as_json) as terminal:
        run = PipelineRun(Mode(mode), terminal, _state_directory(name))
        found = launch(name, config, run, master=common.master, settings=dict(common.settings))
    if name == "compact":
        emit(
            {"replaced": found},
            lambda _: f"Replaced {counted(found, 'file')}.",
            as_json=common.as_json,
        )
    elif name != "audit" and found:
        documents = [
            {key: value for key, value in asdict(tally).items() if not key.startswith("_")}
            for tally in found
        ]
        shows_rows = hasattr(config, "output") and not (config.output.topic or config.output.path)
        if not (common.as_json and shows_rows):
            emit(documents, lambda _: _summaries(found), as_json=common.as_json)
    return found


async def _check_topics(target: Target, names: Sequence[str]) -> None:
    """Raise Failure if none of the named topics exists: Spark would take half a minute to say so.

    If some are missing, the source decides: it goes on with a checkpoint that knows them.
    """
    async with administration(target) as admin:
        existing = {topic.name for topic in await admin.list_topics(internal=True)}
    if names and existing.isdisjoint(names):
        hint = similar(names[0], existing)
        raise Failure(
            f"there is no topic {names[0]}: create the topic first, or check its name{hint}"
        )


def _end_by_sigterm() -> None:
    """Have SIGTERM stop queries in order, and end with the exit code that a shell expects."""

    def stop(*_: object) -> NoReturn:
        sys.exit(TERMINATED)

    signal.signal(signal.SIGTERM, stop)


def _clusters(config: Any) -> list[Target]:
    """The clusters that a pipeline needs, first the one that it reads. Raises ConfigError."""
    others = (getattr(config, table, None) for table in ("output", "copy"))
    needed = [config, *(other for other in others if other and other.bootstrap)]
    return [Target(one.bootstrap, one.security.security()) for one in needed]


def _summaries(tallies: list[Any]) -> str:
    from qbus.clients.pipelines.submitted import summary

    return "\n".join(summary(tally) for tally in tallies)


def _state_directory(name: str) -> str:
    import os

    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return f"{state}/qbus/pipelines/{name}"
