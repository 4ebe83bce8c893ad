"""Options of several `qbus pipeline` commands, and how one is run."""

import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

import click

from qbus.cli.parameters import bootstrap, key_value

P = ParamSpec("P")

_ALL = (
    click.option(
        "--config",
        "config_file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The configuration in TOML; options go before what it says.",
    ),
    click.option(
        "--topic", "topics", multiple=True, metavar="TOPIC", help="Read it; may be repeated."
    ),
    click.option("--pattern", metavar="REGEX", help="Or all topics with such names."),
    click.option(
        "--bootstrap",
        type=bootstrap,
        metavar="HOST:PORT,...",
        envvar="QBUS_BOOTSTRAP",
        show_envvar=True,
        help="Brokers to start from; or zk://HOST:PORT,.../CHROOT. Default: 127.0.0.1:9092.",
    ),
    click.option(
        "--master",
        metavar="URL",
        default="local[*]",
        show_default=True,
        help="Which Spark to run on, as spark://HOST:PORT.",
    ),
    click.option(
        "--spark",
        "settings",
        type=key_value,
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of the Spark session; may be repeated.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout."),
)

_STREAMING = (
    click.option(
        "--starting",
        type=click.Choice(["earliest", "latest"]),
        help="Where to begin without a checkpoint. Default: earliest.",
    ),
    click.option(
        "--checkpoint", metavar="DIR", help="For how far it has come, to go on from there."
    ),
    click.option("--interval", metavar="DURATION", help="How often a micro-batch begins, at most."),
    click.option(
        "--once",
        is_flag=True,
        help="Run to the end of what there is, and stop; not for ever.",
    ),
)

_RESULTS = (
    click.option(
        "--format",
        "form",
        type=click.Choice(["access-log", "json"]),
        help="What values are. Default: access-log.",
    ),
    click.option(
        "--field",
        "fields",
        type=key_value,
        multiple=True,
        metavar="NAME=TYPE",
        help="With json: a field, and its type on Spark; may be repeated.",
    ),
    click.option("--time", metavar="FIELD", help="With json: when it happened."),
    click.option(
        "--time-format",
        metavar="FORMAT",
        help="How --time is written: iso, seconds, milliseconds, or a pattern. Default: iso.",
    ),
    click.option("--to-topic", metavar="TOPIC", help="Send results there, as JSON."),
    click.option("--to-path", metavar="DIR", help="Or write them there, as Parquet."),
    click.option(
        "--batch",
        is_flag=True,
        help="Read what there is without a checkpoint; windows that are not over count as well.",
    ),
)


def common(function: Callable[P, None]) -> Callable[P, None]:
    """Give a command what all have: where to read, and on which Spark."""
    return _with(_ALL, function)


def streaming(function: Callable[P, None]) -> Callable[P, None]:
    """Give a command what those have that go on for ever."""
    return _with(_STREAMING, function)


def results(function: Callable[P, None]) -> Callable[P, None]:
    """Give a command what those have that read lines, and compute."""
    return _with(_RESULTS, function)


def _with(options: tuple[Any, ...], function: Callable[P, None]) -> Callable[P, None]:
    for option in reversed(options):
        function = option(function)
    return function


def stated(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a configuration that options state: those that were chosen, by their places.

    chosen: values by the dotted names of fields.
    """
    document: dict[str, Any] = {}
    for place, value in chosen.items():
        if value is None or value in ((), {}):
            continue
        *tables, name = place.split(".")
        table = document
        for each in tables:
            table = table.setdefault(each, {})
        table[name] = list(value) if isinstance(value, tuple) else value
    return document


def source(topics: tuple[str, ...], pattern: str | None, bootstrap: str | None) -> dict[str, Any]:
    """What all commands state."""
    return {"source.topics": topics, "source.pattern": pattern, "bootstrap": bootstrap}


def end_by_sigterm() -> None:
    """Have SIGTERM stop queries in order, and end with the exit code that a shell expects."""

    def stop(*_: object) -> NoReturn:
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
