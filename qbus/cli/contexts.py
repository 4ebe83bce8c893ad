"""Contexts: clusters by name, and the one that commands talk to.

They are kept in one JSON file in the user's configuration directory, ``$XDG_CONFIG_HOME/qbus`` or
``~/.config/qbus``. A context remembers the other brokers of its cluster, as commands learn them, so
that a command still finds the cluster when the brokers that a person named are gone.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import click

from qbus.cli.failures import Failure


@dataclass(frozen=True, slots=True)
class Context:
    """A cluster: the bootstrap as a person named it, and the brokers that were learned.

    command_config: the file of properties that says how to connect; None: in the clear.
    """

    bootstrap: str
    brokers: tuple[str, ...] = ()
    command_config: str | None = None

    @property
    def addresses(self) -> str:
        """What a client is given: the named brokers, then the others; or ``zk://...``."""
        if self.bootstrap.startswith("zk://"):
            return self.bootstrap
        named = [part.strip() for part in self.bootstrap.split(",")]
        return ",".join(dict.fromkeys([*named, *self.brokers]))


def contexts_file() -> Path:
    """Where contexts are kept."""
    return Path(click.get_app_dir("qbus")) / "contexts.json"


class Contexts:
    """The contexts by name, and which of them is current; `save` keeps changes."""

    def __init__(self, contexts: dict[str, Context], current: str | None, path: Path) -> None:
        self.all = contexts
        self.current = current
        self._path = path

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Read the file; there are no contexts if there is none.

        Raises Failure for a file that cannot be read, or that holds something else.
        """
        path = path or contexts_file()
        try:
            document = json.loads(path.read_bytes())
            found = {
                str(name): Context(
                    str(entry["bootstrap"]),
                    tuple(map(str, entry["brokers"])),
                    entry.get("command_config"),
                )
                for name, entry in document["contexts"].items()
            }
            return cls(found, document["current"], path)
        except (FileNotFoundError, NotADirectoryError):
            return cls({}, None, path)
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failure(f"{path} is damaged: {error!r}. Remove it, or mend it.") from error

    def save(self) -> None:
        """Write the file; raises OSError."""
        from qbus.service.files import replace_file

        document: dict[str, Any] = {
            "current": self.current,
            "contexts": {
                name: {
                    "bootstrap": context.bootstrap,
                    "brokers": list(context.brokers),
                    "command_config": context.command_config,
                }
                for name, context in sorted(self.all.items())
            },
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, json.dumps(document, indent=2).encode() + b"\n", durable=False)

    def need(self, name: str) -> Context:
        """The context ``name``; raises Failure, which names those that there are."""
        try:
            return self.all[name]
        except KeyError:
            known = ", ".join(sorted(self.all)) or "none yet"
            raise Failure(f"there is no context {name}; there are: {known}") from None

    def chosen(self, name: str | None) -> Context | None:
        """The context ``name``, by default the current one; None if there is none."""
        name = name or self.current
        return self.need(name) if name else None


def learn(bootstrap: str, brokers: Iterable[str]) -> None:
    """Remember the ``brokers`` of the cluster that the contexts with this ``bootstrap`` mean.

    Says on stderr when they cannot be kept.
    """
    contexts = Contexts.load()
    learned = tuple(sorted(brokers))
    outdated = {
        name: replace(context, brokers=learned)
        for name, context in contexts.all.items()
        if context.addresses == bootstrap and context.brokers != learned
    }
    if not outdated:
        return
    contexts.all |= outdated
    try:
        contexts.save()
    except OSError as error:
        click.echo(f"qbus: the cluster's brokers are not remembered: {error}", err=True)


def is_kept(bootstrap: str) -> bool:
    """Whether ``bootstrap`` is that of a context that can be read."""
    try:
        contexts = Contexts.load()
    except Failure:  # then no context was chosen, and a command with --bootstrap needs none
        return False
    return any(context.addresses == bootstrap for context in contexts.all.values())
