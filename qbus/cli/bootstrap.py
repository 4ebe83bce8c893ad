"""Where the cluster is: what `--bootstrap` takes."""

import click

from .parameters import split_endpoint

DEFAULT = "127.0.0.1:9092"

_DEFAULT_PORT = 9092


def bootstrap(text: str) -> str:
    """Read ``HOST[:PORT],...``, kept as text."""
    addresses(text)
    return text


def addresses(text: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of ``HOST[:PORT],...``."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise click.BadParameter("it names no broker.")
    return [_address(part) for part in parts]


def _address(text: str) -> tuple[str, int]:
    has_port = ":" in text.rpartition("]")[2]
    return split_endpoint(text if has_port else f"{text}:{_DEFAULT_PORT}")
