"""Configuration of daemons in TOML: dataclasses whose fields carry their rules.

A class is the one place that tells of each of its fields: what it may hold, what it means, and what
holds when it is not stated. Reading refuses what is not allowed, with the field's name, the value
and what is allowed; what was read never changes.
"""

from qbus.service.toml.field import Setting, required, setting, settings_of
from qbus.service.toml.reading import MAX_BYTES, parse, read_fields, read_file
from qbus.service.toml.rules import Rule
from qbus.service.toml.writing import to_document, to_toml

__all__ = [
    "MAX_BYTES",
    "Rule",
    "Setting",
    "parse",
    "read_fields",
    "read_file",
    "required",
    "setting",
    "settings_of",
    "to_document",
    "to_toml",
]
