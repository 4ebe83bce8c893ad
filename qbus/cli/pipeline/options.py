"""Options of several `qbus pipeline` commands, gathered into one value for each kind."""

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click

from qbus.cli.daemons import command_config_option
from qbus.cli.parameters import bootstrap, key_value


class Common(NamedTuple):
    """What every pipeline is given: a configuration, the topics to read, and a Spark."""

    config_file: Path | None
    topics: tuple[str, ...]
    pattern: str | None
    bootstrap: str | None
    master: str
    settings: tuple[tuple[str, str], ...]
    command_config: Path | None
    as_json: bool

    def stated(self) -> dict[str, Any]:
        """The fields of the configuration that these options state. Raises Failure."""
        file, bootstrap = self.command_config, self.bootstrap
        if file is not None and bootstrap is None:
            from qbus.cli.command_config import read_command_config

            bootstrap = read_command_config(file).bootstrap
        return {
            "source.topics": self.topics,
            "source.pattern": self.pattern,
            "bootstrap": bootstrap,
            "security.file": None if file is None else str(file.resolve()),
        }


class Schedule(NamedTuple):
    """What a streaming pipeline is given: where it begins, how often it runs, and when it ends."""

    starting: str | None
    checkpoint: str | None
    interval: str | None
    once: bool

    def stated(self) -> dict[str, Any]:
        """The fields of the configuration that these options state."""
        return {
            "source.starting": self.starting,
            "checkpoint": self.checkpoint,
            "interval": self.interval,
        }

    def mode(self, *, batch: bool = False) -> str:
        """The mode that is chosen; raises a usage error for options that exclude each other."""
        if self.once and batch:
            raise click.UsageError("--once or --batch: name one of them.")
        if batch:
            refuse(
                "--batch",
                starting=self.starting,
                checkpoint=self.checkpoint,
                interval=self.interval,
            )
            return "batch"
        if self.once:
            refuse("--once", interval=self.interval)
            return "once"
        return "stream"


class Results(NamedTuple):
    """What a pipeline of lines is given: how it reads lines, and where its results go."""

    form: str | None
    fields: tuple[tuple[str, str], ...]
    time: str | None
    time_format: str | None
    to_topic: str | None
    to_path: str | None
    batch: bool

    def stated(self) -> dict[str, Any]:
        """The fields of the configuration that these options state."""
        return {
            "lines.format": self.form,
            "lines.fields": dict(self.fields),
            "lines.time": self.time,
            "lines.time_format": self.time_format,
            "output.topic": self.to_topic,
            "output.path": self.to_path,
        }


_COMMON = (
    click.option(
        "--config",
        "config_file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Configuration in TOML; options override it.",
    ),
    click.option(
        "--topic", "topics", multiple=True, metavar="TOPIC", help="Topic to read; may be repeated."
    ),
    click.option("--pattern", metavar="REGEX", help="Read all topics whose whole name matches."),
    click.option(
        "--bootstrap",
        type=bootstrap,
        metavar="HOST:PORT,...",
        envvar="QBUS_BOOTSTRAP",
        show_envvar=True,
        help="Brokers of the cluster; or zk://HOST:PORT,.../CHROOT. Default: 127.0.0.1:9092.",
    ),
    click.option(
        "--master",
        metavar="URL",
        default="local[*]",
        show_default=True,
        help="Spark to run on, such as spark://HOST:PORT.",
    ),
    click.option(
        "--spark",
        "settings",
        type=key_value,
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of the Spark session; may be repeated.",
    ),
    command_config_option(
        "Properties that say how to connect to the cluster, and where without --bootstrap."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout."),
)

_SCHEDULE = (
    click.option(
        "--starting",
        type=click.Choice(["earliest", "latest"]),
        help="Where to start without a checkpoint. Default: earliest.",
    ),
    click.option(
        "--checkpoint",
        metavar="DIR",
        help="Directory that stores the progress; a restart continues from it.",
    ),
    click.option(
        "--interval", metavar="DURATION", help="Shortest time from one micro-batch to the next."
    ),
    click.option(
        "--once",
        is_flag=True,
        help="Process the records that exist now, then stop.",
    ),
)

_RESULTS = (
    click.option(
        "--format",
        "form",
        type=click.Choice(["access-log", "json"]),
        help="Format of the record values. Default: access-log.",
    ),
    click.option(
        "--field",
        "fields",
        type=key_value,
        multiple=True,
        metavar="NAME=TYPE",
        help="With json: a field and its Spark type; may be repeated.",
    ),
    click.option("--time", metavar="FIELD", help="With json: the field with the event time."),
    click.option(
        "--time-format",
        metavar="FORMAT",
        help="Format of --time: iso, seconds, milliseconds, or a pattern. Default: iso.",
    ),
    click.option("--to-topic", metavar="TOPIC", help="Write results to this topic, as JSON."),
    click.option("--to-path", metavar="DIR", help="Write results to this directory, as Parquet."),
    click.option(
        "--batch",
        is_flag=True,
        help="Process the records that exist now, without a checkpoint; keep unfinished windows.",
    ),
)


def common(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of :class:`Common`, as its argument ``common``."""
    return _gathered("common", Common, _COMMON, function)


def schedule(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of :class:`Schedule`, as its argument ``schedule``."""
    return _gathered("schedule", Schedule, _SCHEDULE, function)


def results(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of :class:`Results`, as its argument ``results``."""
    return _gathered("results", Results, _RESULTS, function)


def _gathered(
    name: str, kind: type[Any], options: tuple[Any, ...], function: Callable[..., None]
) -> Callable[..., None]:
    @wraps(function)
    def command(*args: Any, **given: Any) -> None:
        values = {field: given.pop(field) for field in kind._fields}
        function(*args, **given, **{name: kind(**values)})

    for option in reversed(options):
        command = option(command)
    return command


def stated(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a configuration that options state, as nested tables.

    chosen: values by the dotted names of fields; None and empty ones are left out.
    """
    document: dict[str, Any] = {}
    for place, value in chosen.items():
        if value is None or value in ((), {}):
            continue
        *tables, name = place.split(".")
        table = document
        for key in tables:
            table = table.setdefault(key, {})
        table[name] = list(value) if isinstance(value, tuple) else value
    return document


def refuse(chosen: str, **given: object) -> None:
    """Raise a usage error for options that mean nothing beside the option ``chosen``.

    given: options by their names, with their values; those that are empty were not given.
    """
    for name, value in given.items():
        if value:
            raise click.UsageError(f"--{name}: means nothing with {chosen}.")
