"""Names of a package whose modules are imported when they are first used (PEP 562)."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazily(
    package: str, names: Sequence[str], homes: Mapping[str, str], others: Sequence[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of ``package``, whose public names are ``names``.

    homes: the modules of names that take much to import; a leading dot: below the package.
    others: the modules of all other names; those that take the least are first.
    """

    def found(name: str) -> Any:
        for module in (homes[name],) if name in homes else others:
            home = import_module(module, package)
            if hasattr(home, name):
                return getattr(home, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = found(name)
        setattr(sys.modules[package], name, value)
        return value

    def known() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return get, known
