"""Groups of commands: one imports a command only when it runs, one keeps the source's order."""
# ruff: noqa: ARG002 - click's signatures

from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click

_UNCUT = 10_000
"""More characters than any summary has: click would cut at 45, and wraps what is longer."""


class Entry(NamedTuple):
    """The module of a command, and the summary that `--help` prints without importing it."""

    target: str  # "module:attribute", relative to qbus.cli
    summary: str


COMMAND_CONFIG = "--command-config"
"""The option that says how to connect; every command takes it."""

COMMAND_CONFIG_VARIABLE = "QBUS_COMMAND_CONFIG"


def accepting(command: click.Command) -> click.Command:
    """Have a command that connects to no cluster accept ``--command-config`` all the same.

    Scripts give it to every command.
    """
    is_known = any(COMMAND_CONFIG in parameter.opts for parameter in command.params)
    if not isinstance(command, click.Group) and not is_known:
        command.params.append(
            click.Option([COMMAND_CONFIG], metavar="FILE", expose_value=False, hidden=True)
        )
    return command


class _Group(click.Group):
    """A group whose usage errors always know their command; click forgets it for some."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        super().add_command(accepting(cmd), name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            name = ctx.invoked_subcommand
            command = self.get_command(ctx, name) if name else None
            if error.ctx is None and command is not None:
                error.ctx = click.Context(command, parent=ctx, info_name=name)
            raise


class LazyGroup(_Group):
    """A group whose commands are listed in a table, in the order of the table."""

    def __init__(self, *args: Any, entries: dict[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = getattr(import_module(f"qbus.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return accepting(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:  # click suggests from commands that are imported
            near = get_close_matches(args[0], self._entries, n=1)
            if not near:
                raise
            hint = f"No such command {args[0]!r}. Did you mean {near[0]!r}?"
            raise click.UsageError(hint, ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self._entries.items()])


class OrderedGroup(_Group):
    """A group that lists its commands in the order of their definition, with whole summaries."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(_UNCUT)) for name in self.commands]
            )
