"""TOML documents: read from bytes and files, merged, checked as a whole, written."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from qbus.errors import ConfigError
from qbus.extras import lacks
from qbus.service.toml.fields import read_fields, to_document

MAX_BYTES = 512 * 1024
"""The longest configuration, in bytes of TOML: it has to fit into a ZooKeeper node."""

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Loader(Generic[C]):
    """Reads configurations of the class ``kind``.

    ``check`` checks what no field can tell alone; it returns the configuration, perhaps completed,
    or raises ConfigError.

    All methods raise :class:`~qbus.errors.ConfigError` for what is not TOML, unknown, missing or
    not allowed; the message names the field, its value and what is allowed.
    """

    kind: type[C]
    check: Callable[[C], C]

    def read(self, stated: Mapping[str, Any]) -> C:
        """Return the configuration that a document of TOML's types states."""
        return self.check(read_fields(self.kind, stated))

    def parse(
        self,
        data: bytes,
        *,
        defaults: Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> C:
        """Return the configuration in TOML, in UTF-8.

        ``defaults`` hold where ``data`` states nothing, ``overrides`` whatever it states.
        """
        return self.read(merged(merged(defaults or {}, parse(data)), overrides or {}))

    def load(
        self,
        path: Path,
        *,
        defaults: Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> C:
        """Return the configuration in a file, as :meth:`parse`; errors begin with its name."""
        return read_file(
            path, lambda data: self.parse(data, defaults=defaults, overrides=overrides)
        )


def read_file(path: Path, read: Callable[[bytes], C]) -> C:
    """Return what ``read`` makes of a file; raises ConfigError, beginning with the file's name."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    try:
        return read(data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse(data: bytes) -> dict[str, Any]:
    """Return the TOML document, in UTF-8; raises ConfigError for what is none, or is too long."""
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{len(data)} bytes are too long: at most {MAX_BYTES} are allowed")
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"not TOML: {error}") from error


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``below`` with ``above`` laid over it: tables are merged, other values replaced."""
    document = dict(below)
    for name, value in above.items():
        known = document.get(name)
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            document[name] = merged(known, value)
        else:
            document[name] = value
    return document


def to_toml(config: Any) -> str:
    """Return the TOML that is read as ``config``, with every field that has a value.

    Raises :class:`~qbus.errors.ConfigError` if the package that writes TOML is missing.
    """
    try:
        import tomli_w  # noqa: PLC0415 - a daemon that runs writes none
    except ImportError:
        raise ConfigError(lacks("writing TOML needs tomli-w", "agent")) from None

    return tomli_w.dumps(to_document(config))
