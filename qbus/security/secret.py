"""Secrets in configuration: where they stand, and how they are shown."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from qbus.errors import ConfigError

MASK: Final = "***"
"""What is shown in place of a secret."""


def is_reference(value: str) -> bool:
    """Whether a secret's value says where it stands: ``file:PATH`` or ``env:NAME``."""
    return value.startswith(("file:", "env:"))


def resolve_secret(name: str, value: str) -> str:
    """Return the secret that ``value`` is, or that it says the place of.

    name: what it is for, in messages. Raises :class:`~qbus.errors.ConfigError`.
    """
    kind, _, place = value.partition(":")
    if kind == "env":
        found = os.environ.get(place)
        if found is None:
            raise ConfigError(f"{name}: there is no environment variable {place}")
        return found
    if kind == "file":
        try:
            return Path(place).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError(f"{name}: {place}: {reason}") from None
    return value


def is_secret(name: str) -> bool:
    """Whether a property of that name holds a secret."""
    lowered = name.lower()
    return any(word in lowered for word in ("password", "secret", "jaas")) or lowered.endswith(
        ("token", "ssl.key.pem", "keystore.key")
    )


def masked(properties: Mapping[str, object]) -> dict[str, object]:
    """Return ``properties`` to be shown: secrets are replaced, and references to them are not."""
    return {
        name: MASK if is_secret(name) and not is_reference(str(value)) else value
        for name, value in properties.items()
    }
