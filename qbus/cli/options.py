"""Options that many commands share, and the decorator for commands that are coroutines."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from qbus.cli.completing import topic_settings
from qbus.cli.lazy import COMMAND_CONFIG, COMMAND_CONFIG_VARIABLE
from qbus.cli.parameters import DEFAULT_BOOTSTRAP, bootstrap, key_value

if TYPE_CHECKING:
    from qbus.cli.targets import Said, Target

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


def _target(context: click.Context, parameter: click.Parameter, stated: str | None) -> "Target":
    """The cluster that the options, the environment or a context mean."""
    from qbus.cli.contexts import Contexts
    from qbus.cli.targets import choose

    return choose(
        _said(context, parameter, stated),
        context.meta.pop(_KEPT + "context"),
        context.meta.pop(_KEPT + "command_config"),
        Contexts.load,
    )


def _said(context: click.Context, parameter: click.Parameter, value: str | None) -> "Said":
    from qbus.cli.targets import Said

    assert parameter.name is not None
    source = context.get_parameter_source(parameter.name)
    return Said(value, here=source is ParameterSource.COMMANDLINE)


def _keep(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Remember the value of an option for the one that asks, which comes later."""
    context.meta[f"{_KEPT}{parameter.name}"] = _said(context, parameter, value)


_KEPT = "qbus.kept."

_bootstrap_option = click.option(
    "--bootstrap",
    "target",
    type=bootstrap,
    metavar="HOST:PORT,...",
    envvar="QBUS_BOOTSTRAP",
    show_envvar=True,
    callback=_target,
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
    callback=_keep,
    help="The cluster that 'qbus context use NAME' named. Default: the one used last.",
)


_command_config_option = click.option(
    COMMAND_CONFIG,
    metavar="FILE",
    envvar=COMMAND_CONFIG_VARIABLE,
    show_envvar=True,
    type=click.Path(dir_okay=False),
    is_eager=True,
    expose_value=False,
    callback=_keep,
    help="Properties that say how to connect, as security.protocol and sasl.username; and where,"
    " without --bootstrap. Default: the context's.",
)


def bootstrap_options(function: Callable[P, R]) -> Callable[P, R]:
    """Give a command ``--bootstrap``, ``--context`` and ``--command-config``.

    The function gets the cluster that they mean as ``target``.
    """
    return _bootstrap_option(_context_option(_command_config_option(function)))


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

    Adds ``--bootstrap``, ``--context``, ``--command-config`` and ``--json``.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        from qbus.cli.running import run_to_end

        run_to_end(function(*args, **kwargs))

    return bootstrap_options(json_option(run))
