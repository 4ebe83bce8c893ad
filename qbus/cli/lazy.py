"""A click group that imports a command only when it runs."""
# ruff: noqa: ARG002 - click's signatures

from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click


class Entry(NamedTuple):
    """The module of a command, and the summary that `--help` prints without importing it."""

    target: str  # "module:attribute", relative to qbus.cli
    summary: str


class LazyGroup(click.Group):
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
        return command

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


class OrderedGroup(click.Group):
    """A group that lists its commands in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)
