"""The same requests about what does not exist: who may describe neither must see no difference."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from qbus.wire import Struct

from .row import IdOf, Row

ABSENT: Final = {"orders": "ordera", "readers": "readera", "payments": "paymenta"}
"""For each name that exists another of the same length that does not."""

_NAME: Final = re.compile(rf"(?<![\w-])({'|'.join(ABSENT)})(?![\w/-])")


def without_what_exists(row: Row) -> Row:
    """The row with the absent names."""
    return replace(row, request=renamed(row.request))


def renamed(value: Any) -> Any:
    """Requests or answers with the absent names in place of the others; ids stay."""
    if isinstance(value, str):
        return value if isinstance(value, IdOf) else _renamed_text(value)
    if isinstance(value, Mapping):
        return {key: renamed(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [renamed(one) for one in value]
    if isinstance(value, Struct):
        kind = type(value)
        return kind(**{name: renamed(getattr(value, name)) for name in kind.__slots__})
    return value


def _renamed_text(text: str) -> str:
    """A name, or a sentence with names."""
    return _NAME.sub(lambda found: ABSENT[found[0]], text)
