"""`qbus tls`: certificates for trials."""

from pathlib import Path

import click

from qbus.cli.failures import Failure
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import json_option
from qbus.cli.output import Document, emit
from qbus.cli.parameters import IntRange


@click.group(cls=OrderedGroup)
def tls() -> None:
    """Make certificates for trials."""


@tls.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name or address at which clients reach a broker; may be repeated. Default: those of"
    " this machine, and localhost.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    help="Who a client's certificate names, in NAME.pem; may be repeated. Default: client.",
)
@click.option(
    "--days",
    type=IntRange(1, 3650),
    default=365,
    show_default=True,
    metavar="N",
    help="How long the certificates are valid.",
)
@json_option
def init(
    *,
    directory: Path,
    hosts: tuple[str, ...],
    clients: tuple[str, ...],
    days: int,
    as_json: bool,
) -> None:
    """Make an authority in DIR, and certificates for a broker and for clients that it signs.

    For trials and tests only: the authority's key lies beside them without a password, and nothing
    can be revoked. DIR gets ca.pem, which clients trust; server.pem and server.key for brokers;
    and NAME.pem and NAME.key for each client. Keys have mode 0600. No file is replaced. In an
    authority's DIR, more certificates are made for it.
    """
    from qbus.security.trial_ca import (
        CA_CERTIFICATE,
        CA_KEY,
        TrialAuthority,
        local_hosts,
        write_new,
    )

    names = tuple(dict.fromkeys(clients or ("client",)))
    reached = tuple(dict.fromkeys(hosts)) or tuple(local_hosts())
    _check_names(names)
    ca_certificate, ca_key = directory / CA_CERTIFICATE, directory / CA_KEY
    is_new = not (ca_certificate.exists() and ca_key.exists())
    makes_server = is_new or bool(hosts)
    wanted = [*(("server",) if makes_server else ()), *names]
    files = [directory / f"{name}{ending}" for name in wanted for ending in (".pem", ".key")]
    for path in [*((ca_certificate, ca_key) if is_new else ()), *files]:
        if path.exists():
            raise Failure(f"{path} exists and is not replaced: choose another directory or name")
    directory.mkdir(parents=True, exist_ok=True)
    load = TrialAuthority.create if is_new else TrialAuthority.load
    authority = load(ca_certificate, ca_key)
    for name in wanted:
        signed, key = authority.issue(name, reached if name == "server" else (), days)
        write_new(directory / f"{name}.key", key, secret=True)
        write_new(directory / f"{name}.pem", signed)
    document = {
        "directory": str(directory.resolve()),
        "ca": str(ca_certificate.resolve()),
        "server": str((directory / "server.pem").resolve()) if makes_server else None,
        "hosts": list(reached) if makes_server else [],
        "clients": {name: f"User:CN={name}" for name in names},
        "days": days,
    }
    emit(document, _made, as_json=as_json)


def _check_names(names: tuple[str, ...]) -> None:
    for name in names:
        if name in {"ca", "server"} or "/" in name or not name or name.startswith("."):
            raise click.UsageError(f"--client {name!r} cannot be the name of a client's files.")


def _made(document: Document) -> str:
    directory = Path(document["directory"])
    lines = [f"For trials only: who reads {directory / 'ca.key'} can pretend to be anybody.", ""]
    if document["server"] is not None:
        lines += [
            f"A broker, reached as {', '.join(document['hosts'])}:",
            f"  ssl.certificate.location={document['server']}",
            f"  ssl.key.location={directory / 'server.key'}",
            f"  ssl.truststore.location={document['ca']}",
            "",
        ]
    for name, who in document["clients"].items():
        lines += [
            f"A client, {who} where ssl.client.auth=required:",
            f"  ssl.ca.location={document['ca']}",
            f"  ssl.certificate.location={directory / f'{name}.pem'}",
            f"  ssl.key.location={directory / f'{name}.key'}",
            "",
        ]
    return "\n".join(lines[:-1])
