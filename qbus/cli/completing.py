"""Completion of names on the command line: topics, groups, users, and keys of settings.

Each function is a click ``shell_complete``. A shell shows nothing when the cluster does not answer
within two seconds, or at all: an error would spoil the line that is being typed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from qbus.clients import Admin

T = TypeVar("T")

_TIMEOUT_S = 2.0


def topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of topics; internal ones only where ``_`` is typed."""

    async def read(admin: "Admin") -> list[str]:
        return [t.name for t in await admin.list_topics(internal=incomplete.startswith("_"))]

    return _matching(_asked(context, read), incomplete)


def groups(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of groups."""

    async def read(admin: "Admin") -> list[str]:
        return [found.group for found in await admin.list_groups()]

    return _matching(_asked(context, read), incomplete)


def transactional_ids(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Transactional ids."""

    async def read(admin: "Admin") -> list[str]:
        return [found.transactional_id for found in await admin.list_transactions()]

    return _matching(_asked(context, read), incomplete)


def users(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of users that log in with a password."""

    async def read(admin: "Admin") -> list[str]:
        return [*await admin.describe_user_scram_credentials()]

    return _matching(_asked(context, read), incomplete)


def topic_settings(_: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Keys of topics' settings."""
    from qbus.config import TOPIC_CONFIG

    return _settings(TOPIC_CONFIG, parameter, incomplete)


def broker_settings(_: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Keys of brokers' settings."""
    from qbus.config import BROKER_CONFIG

    return _settings(BROKER_CONFIG, parameter, incomplete)


def _settings(keys: Iterable[str], parameter: click.Parameter, incomplete: str) -> list[str]:
    """``KEY=`` where a value is to follow, else ``KEY``."""
    has_value = "=" in str(parameter.metavar)
    return _matching((f"{key}=" if has_value else key for key in keys), incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _asked(context: click.Context, read: "Callable[[Admin], Awaitable[list[T]]]") -> list[T]:
    from qbus.cli.session import administration

    async def ask() -> list[T]:
        async with asyncio.timeout(_TIMEOUT_S), administration(context.params["target"]) as it:
            return await read(it)

    try:
        return asyncio.run(ask())
    except Exception:  # noqa: BLE001 - see above
        return []
