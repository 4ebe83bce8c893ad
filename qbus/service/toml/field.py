"""A field of the configuration: its default, its rule, and what it means.

Fields are ordinary ones of dataclasses that carry their rule with them, so that the class is the
one place that tells of each.
"""

import dataclasses
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from qbus.service.toml.rules import Rule

_KEY = "setting"


class Setting(NamedTuple):
    """What is known of a field; ``name`` is the one it has in the file."""

    name: str
    attribute: str
    rule: "Rule"
    doc: str
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether it has to be stated."""
        return self.default is MISSING


def setting(default: Any, rule: "Rule", doc: str, *, table: str | None = None) -> Any:
    """Define a field; ``table`` is its name in the file where that is another than in Python."""
    return dataclasses.field(default=default, metadata={_KEY: (rule, doc, table)})


def required(rule: "Rule", doc: str) -> Any:
    """Define a field that has no default."""
    return dataclasses.field(metadata={_KEY: (rule, doc, None)})


def settings_of(kind: type) -> dict[str, Setting]:
    """The fields of a class of the configuration, by their names in the file."""
    found = {}
    for field in dataclasses.fields(kind):
        rule, doc, table = field.metadata[_KEY]
        name = table or field.name
        found[name] = Setting(name, field.name, rule, doc, field.default)
    return found
