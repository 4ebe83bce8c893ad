"""Options that many commands share, and the decorator for commands that are coroutines."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from qbus.cli.completing import topic_settings
from qbus.cli.parameters import DEFAULT_BOOTSTRAP, bootstrap, key_value

P = ParamSpec("P")
R = TypeVar("R")

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON on stdout, and nothing else there."
)

watch_option = click.option(
    "--watch/--once",
    default=None,
    help="Refresh until Ctrl-C, or show it once. Default: refresh, on a terminal.",
)

config_option = click.option(
    "--config",
    type=key_value,
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=topic_settings,
    help="A topic setting, such as retention.ms=3600000; may be repeated.",
)

_all_option = click.option(
    "--all", "show_all", is_flag=True, help="Show settings that have their default value, too."
)


def _chosen_bootstrap(
    context: click.Context, _parameter: click.Parameter, stated: str | None
) -> str:
    """The stated bootstrap, or that of the context: the named one, else the current one."""
    from qbus.cli.contexts import Contexts

    name = context.meta.pop(_CONTEXT, None)
    is_named_here = context.meta.pop(_IS_NAMED_HERE, False)
    is_stated_here = context.get_parameter_source("bootstrap") is ParameterSource.COMMANDLINE
    if is_named_here and is_stated_here:
        raise click.UsageError("Name either --bootstrap or --context.")
    if stated is not None and not is_named_here:
        return stated
    chosen = Contexts.load().chosen(name)
    return chosen.addresses if chosen else DEFAULT_BOOTSTRAP


def _keep_context(context: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    source = context.get_parameter_source("context")
    context.meta[_CONTEXT] = name
    context.meta[_IS_NAMED_HERE] = source is ParameterSource.COMMANDLINE


_CONTEXT = "qbus.context"
_IS_NAMED_HERE = "qbus.context.is_named_here"

_bootstrap_option = click.option(
    "--bootstrap",
    type=bootstrap,
    metavar="HOST:PORT,...",
    envvar="QBUS_BOOTSTRAP",
    show_envvar=True,
    callback=_chosen_bootstrap,
    help="Brokers of the cluster; or zk://HOST:PORT,.../CHROOT, where they are registered."
    f" Default: the context's, or else {DEFAULT_BOOTSTRAP}.",
)

_context_option = click.option(
    "--context",
    metavar="NAME",
    envvar="QBUS_CONTEXT",
    show_envvar=True,
    is_eager=True,
    expose_value=False,
    callback=_keep_context,
    help="The cluster that 'qbus context use NAME' named. Default: the one used last.",
)


def bootstrap_options(function: Callable[P, R]) -> Callable[P, R]:
    """Give a command ``--bootstrap`` and ``--context``; the function gets ``bootstrap``."""
    return _bootstrap_option(_context_option(function))


def setting_options(
    keys: Callable[[click.Context, click.Parameter, str], list[str]],
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Give a command ``--set``, ``--unset`` and ``--all``; ``keys`` completes the keys."""
    set_option = click.option(
        "--set",
        "to_set",
        type=key_value,
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=keys,
        help="Change a setting.",
    )
    unset_option = click.option(
        "--unset",
        multiple=True,
        metavar="KEY",
        shell_complete=keys,
        help="Return a setting to its default.",
    )

    def give(function: Callable[P, None]) -> Callable[P, None]:
        return set_option(unset_option(_all_option(function)))

    return give


def client_command(function: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a command of a coroutine that talks to brokers.

    Adds ``--bootstrap``, ``--context`` and ``--json``.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        from qbus.cli.running import run_to_end

        run_to_end(function(*args, **kwargs))

    return bootstrap_options(json_option(run))
