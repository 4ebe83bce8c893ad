"""Passwords that commands are given, and files of properties that have them."""

import sys
from pathlib import Path

import click

from qbus.cli.failures import Failure
from qbus.cli.targets import Target


def read_password(stated: str | None, file: str | None, user: str) -> str:
    """The password: as stated, or the first line of a file, or as somebody types it.

    Raises a usage error, or Failure for a file that cannot be read.
    """
    if stated is not None and file is not None:
        raise click.UsageError("Name either --password or --password-file.")
    if stated is None and file is None:
        if not sys.stdin.isatty():
            raise click.UsageError(
                "Nobody can be asked for the password: name --password-file FILE, or - for stdin."
            )
        stated = click.prompt(
            f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True
        )
    password = stated if stated is not None else _first_line(str(file))
    if not password:
        raise click.UsageError("The password is empty.")
    return password


def _first_line(file: str) -> str:
    if file == "-":
        return sys.stdin.readline().rstrip("\r\n")
    try:
        with Path(file).open(encoding="utf-8") as opened:
            return opened.readline().rstrip("\r\n")
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Failure(f"{file}: it is not UTF-8 text") from error


def check_new_file(path: Path) -> None:
    """Raise Failure for a file that there is: what is in it may be all that somebody has."""
    if path.exists():
        raise Failure(f"{path} exists: name a new file, or remove that one")


def save_properties(path: Path, target: Target, user: str, password: str, mechanism: str) -> None:
    """Write what a user connects with: as the command did, but with the user's own password."""
    from qbus.cli.command_config import BOOTSTRAP, read_command_config
    from qbus.security.trial_ca import write_new

    properties: dict[str, str] = {BOOTSTRAP: target.bootstrap}
    if target.command_config is not None:
        known = read_command_config(target.command_config).properties
        kept = {name: known[name] for name in known if name.startswith(("security.", "ssl.ca."))}
        properties |= kept
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    is_encrypted = protocol in {"SSL", "SASL_SSL"}
    properties["security.protocol"] = "SASL_SSL" if is_encrypted else "SASL_PLAINTEXT"
    properties |= {
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
    text = "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())
    try:
        write_new(path, text.encode(), secret=True)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror} (the user was added)") from error


def _escaped(value: str) -> str:
    """A value as files of properties have it: a backslash before what would mean something else."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{escaped}" if escaped[:1] in {" ", "\t"} else escaped
