"""`qbus quota`: show, set and remove limits of users, clients and addresses."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from qbus.cli.completing import users
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import client_command
from qbus.cli.output import Document, Remark, emit, table
from qbus.cli.parameters import key_value
from qbus.cli.targets import Target

if TYPE_CHECKING:
    from rich.console import RenderableType

Entity = tuple[tuple[str, str | None], ...]
"""Whom a limit is for: pairs of ``user``, ``client-id`` or ``ip`` and a name; None: the default."""

_BY_REQUESTS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
_BY_ADDRESS: Final = ("connection_creation_rate",)
KEYS: Final = (*_BY_REQUESTS, *_BY_ADDRESS)


def limit(text: str) -> tuple[str, float]:
    """Read ``KEY=NUMBER``."""
    key, value = key_value(text)
    _check_key(key)
    try:
        number = float(value)
    except ValueError:
        raise click.BadParameter(f"{text!r}: {value} is not a number.") from None
    if not 0 < number < float("inf"):
        raise click.BadParameter(f"{text!r}: a limit is more than 0; 'qbus quota remove' ends it.")
    return key, number


def limit_key(text: str) -> str:
    """Read the name of a limit."""
    _check_key(text)
    return text


def _check_key(key: str) -> None:
    if key not in KEYS:
        raise click.BadParameter(f"{key!r} is no limit; there are: {', '.join(KEYS)}.")


_ENTITY: Final = (
    click.option("--user", metavar="NAME", shell_complete=users, help="A user."),
    click.option("--user-defaults", is_flag=True, help="Every user that has no limits of its own."),
    click.option("--client", metavar="ID", help="A client id; with a user: that user's client."),
    click.option("--client-defaults", is_flag=True, help="Every other client id."),
    click.option("--ip", metavar="ADDRESS", help="An address."),
    click.option("--ip-defaults", is_flag=True, help="Every other address."),
)


def entity_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say whom a limit is for, as its argument ``entity``."""

    @wraps(function)
    def command(*args: Any, **given: Any) -> Any:
        stated = {
            name: (given.pop(name), given.pop(f"{name}_defaults"))
            for name in ("user", "client", "ip")
        }
        return function(*args, **given, entity=_entity(stated))

    for option in reversed(_ENTITY):
        command = option(command)
    return command


def _entity(stated: Mapping[str, tuple[str | None, bool]]) -> Entity:
    for name, (value, is_default) in stated.items():
        if value is not None and is_default:
            raise click.UsageError(f"Name either --{name} or --{name}-defaults.")
        if value == "":
            raise click.UsageError(f"--{name} is empty.")
    found = tuple(
        ("client-id" if name == "client" else name, value)
        for name, (value, is_default) in stated.items()
        if value is not None or is_default
    )
    kinds = [kind for kind, _ in found]
    if "ip" in kinds and len(kinds) > 1:
        raise click.UsageError("--ip goes with no other: an address connects before it is a user.")
    return found


@click.group(cls=OrderedGroup)
def quota() -> None:
    """Show, set and remove limits of users, clients and addresses, per broker.

    Whoever exceeds one is answered later, and not refused. Of several limits that concern a request
    the most specific counts: of a user's client, of a user, of a client id, then the defaults.
    """


@quota.command()
@entity_options
@click.option("--strict", is_flag=True, help="Only limits of exactly that; none of its clients.")
@client_command
async def show(*, entity: Entity, strict: bool, target: Target, as_json: bool) -> None:
    """Show the limits: all, or those of what the options name."""
    from qbus.cli.session import administration

    async with administration(target) as admin:
        found = await admin.describe_client_quotas(dict(entity) or None, strict=strict)
    documents = [
        {"entity": _names(one), "limits": dict(sorted(limits.items()))}
        for one, limits in sorted(found.items(), key=_order)
    ]
    emit(documents, _shown, as_json=as_json)


@quota.command("set")
@click.argument("limits", metavar="KEY=VALUE...", type=limit, nargs=-1, required=True)
@entity_options
@client_command
async def set_(
    *, limits: tuple[tuple[str, float], ...], entity: Entity, target: Target, as_json: bool
) -> None:
    """Set limits; those that are not named stay.

    KEY is producer_byte_rate or consumer_byte_rate (bytes a second), request_percentage (of a
    thread's time: 100 is one whole), controller_mutation_rate (partitions made or deleted a
    second), or with --ip connection_creation_rate (connections a second).
    """
    from qbus.cli.session import administration

    _need(entity, [key for key, _ in limits])
    async with administration(target) as admin:
        await admin.alter_client_quotas({entity: dict(limits)})
    emit({"entity": _names(entity), "limits": dict(limits)}, _set, as_json=as_json)


@quota.command()
@click.argument("keys", metavar="[KEY]...", type=limit_key, nargs=-1)
@entity_options
@client_command
async def remove(*, keys: tuple[str, ...], entity: Entity, target: Target, as_json: bool) -> None:
    """Remove limits; without a KEY all of them."""
    from qbus.cli.session import administration

    _need(entity, keys)
    async with administration(target) as admin:
        if not keys:
            found = await admin.describe_client_quotas(dict(entity), strict=True)
            keys = tuple(sorted(key for limits in found.values() for key in limits))
        if keys:
            await admin.alter_client_quotas({entity: dict.fromkeys(keys)})
    emit({"entity": _names(entity), "removed": list(keys)}, _removed, as_json=as_json)


def _need(entity: Entity, keys: "list[str] | tuple[str, ...]") -> None:
    if not entity:
        raise click.UsageError("Name whom the limit is for: --user, --client, --ip, or defaults.")
    possible = _BY_ADDRESS if entity[0][0] == "ip" else _BY_REQUESTS
    for key in keys:
        if key not in possible:
            raise click.UsageError(
                f"{key} is no limit of {_text(_names(entity))}, which has: {', '.join(possible)}."
            )


def _names(entity: Entity) -> dict[str, str | None]:
    return dict(entity)


def _order(item: tuple[Entity, Any]) -> list[tuple[str, str]]:
    return [(kind, name or "") for kind, name in item[0]]


def _text(entity: Mapping[str, str | None]) -> str:
    """The words for an entity: ``user alice, client app``; ``every other user``."""
    words = {"user": "user", "client-id": "client", "ip": "address"}
    return ", ".join(
        f"every other {words[kind]}" if name is None else f"{words[kind]} {name}"
        for kind, name in sorted(entity.items(), reverse=True)
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,g}"


def _shown(documents: list[Document]) -> "RenderableType":
    if not documents:
        return Remark(
            "No limits: set one with 'qbus quota set --user NAME producer_byte_rate=1000000'."
        )
    rows = (
        (_text(one["entity"]), key, _number(value))
        for one in documents
        for key, value in one["limits"].items()
    )
    return table("of", "limit", "#a second, or percent", rows=rows, whole=("limit",))


def _set(document: Document) -> str:
    limits = ", ".join(f"{key}={_number(value)}" for key, value in document["limits"].items())
    return f"Limits of {_text(document['entity'])}: {limits}."


def _removed(document: Document) -> str:
    who = _text(document["entity"])
    if not document["removed"]:
        return f"There were no limits of {who}."
    return f"Removed {', '.join(document['removed'])} of {who}."
