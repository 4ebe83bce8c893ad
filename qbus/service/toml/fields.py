"""The fields of a configuration class: their defaults, their rules and what they mean.

Fields are ordinary dataclass fields that carry their rule in their metadata.
"""

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, NamedTuple, TypeVar

from qbus.errors import ConfigError

_KEY = "setting"
_LONGEST_VALUE = 200

C = TypeVar("C")


def unchanged(value: Any) -> Any:
    """Return the value: how most fields are written."""
    return value


@dataclass(frozen=True, slots=True)
class Rule:
    """What a field may hold, and how that is read and written.

    ``read`` makes a Python value of a TOML value; it also gets the field's place in the document,
    for tables. It raises ValueError for what is not ``allowed``, with a text if there is more to
    say. ``write`` is its reverse. ``nested`` is the class of a table's fields.
    """

    allowed: str
    read: Callable[[Any, str], Any]
    write: Callable[[Any], Any] = unchanged
    nested: type | None = None

    def parse(self, place: str, raw: object) -> Any:
        """Return the value of ``raw``; raises ConfigError with place, value and what is allowed."""
        try:
            return self.read(raw, place)
        except ValueError as error:
            why = f"expected {self.allowed}" + (f": {error}" if str(error) else "")
            raise ConfigError(f"{place} = {abbreviated(raw)}: {why}") from None


class Setting(NamedTuple):
    """A field; ``name`` is its name in TOML, ``attribute`` the one in Python."""

    name: str
    attribute: str
    rule: Rule
    doc: str
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING


def setting(default: Any, rule: Rule, doc: str, *, table: str | None = None) -> Any:
    """Define a field; ``table`` is its name in TOML where that differs from Python's."""
    return dataclasses.field(default=default, metadata={_KEY: (rule, doc, table)})


def required(rule: Rule, doc: str) -> Any:
    """Define a field that has no default."""
    return dataclasses.field(metadata={_KEY: (rule, doc, None)})


def settings_of(kind: type) -> dict[str, Setting]:
    """Return the fields of a configuration class by their names in TOML."""
    found = {}
    for field in dataclasses.fields(kind):
        rule, doc, table = field.metadata[_KEY]
        name = table or field.name
        found[name] = Setting(name, field.name, rule, doc, field.default)
    return found


def read_fields(kind: type[C], stated: Mapping[str, Any], place: str = "") -> C:
    """Return an instance of ``kind``; ``place`` is where its table is, empty at the top.

    Raises ConfigError for fields that are unknown, missing, or hold a value that is not allowed.
    """
    settings = settings_of(kind)
    within = f"{place}." if place else ""
    for name in stated:
        if name not in settings:
            raise ConfigError(f"{within}{name}: {_unknown(name, list(settings))}")
    for name, setting in settings.items():
        if setting.is_required and name not in stated:
            raise ConfigError(f"{within}{name} is missing: expected {setting.rule.allowed}")
    return kind(
        **{
            settings[name].attribute: settings[name].rule.parse(f"{within}{name}", raw)
            for name, raw in stated.items()
        }
    )


def to_document(config: Any) -> dict[str, Any]:
    """Return the fields of a table in TOML's types, without those that have no value."""
    document = {}
    for name, setting in settings_of(type(config)).items():
        value = getattr(config, setting.attribute)
        if value is not None and not (value == "" and setting.default == ""):
            document[name] = setting.rule.write(value)
    return document


def abbreviated(raw: object) -> str:
    """Return a value as an error message shows it."""
    text = repr(raw) if not isinstance(raw, bool) else str(raw).lower()
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "..."


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}?" if close else "there are " + ", ".join(known)
    return f"no such field; {hint}"
