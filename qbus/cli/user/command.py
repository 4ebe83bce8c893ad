"""`qbus user`: add, list, remove."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from qbus.cli.completing import users
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import client_command
from qbus.cli.output import Document, Remark, emit, table
from qbus.cli.parameters import IntRange
from qbus.cli.targets import Target

if TYPE_CHECKING:
    from rich.console import RenderableType

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@click.group(cls=OrderedGroup)
def user() -> None:
    """Add, list and remove users, who log in with a password.

    A user may do nothing yet: 'qbus acl add' allows things. Users of certificates and tokens are
    not listed, as nothing of them is stored.
    """


@user.command()
@click.argument("name")
@click.option(
    "--password",
    metavar="PASSWORD",
    help="Others on this machine can see it while the command runs. Default: ask for it.",
)
@click.option(
    "--password-file",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Read the password from the first line of FILE, or of stdin if it is -.",
)
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(MECHANISMS, case_sensitive=False),
    multiple=True,
    help="How the user may log in, beside PLAIN; may be repeated. Default: both.",
)
@click.option(
    "--iterations",
    type=IntRange(4096, 16_384),
    default=8192,
    show_default=True,
    metavar="N",
    help="How slowly a stolen credential is guessed; logging in takes as much longer.",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write what the user connects with to a new file: --command-config of other commands,"
    " properties of librdkafka's clients.",
)
@client_command
async def add(
    *,
    name: str,
    password: str | None,
    password_file: str | None,
    mechanisms: tuple[str, ...],
    iterations: int,
    save: Path | None,
    target: Target,
    as_json: bool,
) -> None:
    """Add the user NAME, or change the password of one that there is.

    Connections that exist go on with a changed password until they log in anew.
    """
    from qbus.cli.session import administration
    from qbus.cli.user.passwords import check_new_file, read_password, save_properties
    from qbus.clients.admin.types import ScramUpsert

    if not name:
        raise click.UsageError("NAME is empty: name the user.")
    if save is not None:
        check_new_file(save)
    secret = read_password(password, password_file, name)
    chosen = mechanisms or MECHANISMS
    async with administration(target) as admin:
        for mechanism in chosen:  # a request may alter a user once
            await admin.alter_user_scram_credentials(
                [ScramUpsert(name, secret, mechanism, iterations)]
            )
    if save is not None:
        save_properties(save, target, name, secret, chosen[0])
    document = {
        "user": name,
        "mechanisms": list(chosen),
        "iterations": iterations,
        "saved": None if save is None else str(save),
    }
    emit(document, _added, as_json=as_json)


@user.command("list")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=users)
@client_command
async def list_users(*, names: tuple[str, ...], target: Target, as_json: bool) -> None:
    """List users and how they log in; without a NAME all of them."""
    from qbus.cli.session import administration

    async with administration(target) as admin:
        found = await admin.describe_user_scram_credentials(names or None)
    documents = [
        {
            "user": name,
            "credentials": [
                {"mechanism": one.mechanism, "iterations": one.iterations} for one in credentials
            ],
        }
        for name, credentials in sorted(found.items())
    ]
    emit(documents, _listed, as_json=as_json)


@user.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=users)
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(MECHANISMS, case_sensitive=False),
    multiple=True,
    help="Only this way of logging in; may be repeated. Default: all.",
)
@client_command
async def remove(
    *, names: tuple[str, ...], mechanisms: tuple[str, ...], target: Target, as_json: bool
) -> None:
    """Remove users: they cannot log in any more.

    Rules about them remain, and count for a user of that name that is added later: 'qbus acl remove
    --principal User:NAME' removes them.
    """
    from qbus.cli.session import administration

    async with administration(target) as admin:
        found = await admin.describe_user_scram_credentials(names)
        deletions = [
            (name, one.mechanism)
            for name in names
            for one in found[name]
            if not mechanisms or one.mechanism in mechanisms
        ]
        for deletion in deletions:  # a request may alter a user once
            await admin.alter_user_scram_credentials([], [deletion])
    documents = [
        {"user": name, "mechanisms": [m for user, m in deletions if user == name]} for name in names
    ]
    emit(documents, _removed, as_json=as_json)


def _added(document: Document) -> str:
    text = f"User {document['user']} logs in with {' or '.join(document['mechanisms'])}, or PLAIN."
    if document["saved"] is not None:
        text += f" {document['saved']} connects as that user."
    return text


def _listed(documents: list[Document]) -> "RenderableType":
    if not documents:
        return Remark("No users yet: add one with 'qbus user add NAME'.")
    rows = (
        (document["user"], one["mechanism"], one["iterations"])
        for document in documents
        for one in document["credentials"]
    )
    return table("user", "mechanism", "#iterations", rows=rows, whole=("mechanism",))


def _removed(documents: list[Document]) -> str:
    return "\n".join(
        f"User {document['user']} does not log in with {' or '.join(document['mechanisms'])}"
        " any more."
        if document["mechanisms"]
        else f"User {document['user']} does not log in that way."
        for document in documents
    )
