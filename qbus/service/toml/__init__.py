"""Configuration of daemons in TOML: dataclasses whose fields carry their rules.

A configuration class is the one place that says of each field what it may hold, what it means and
what its default is. Reading refuses what is not allowed and names the field, its value and what is
allowed. A configuration never changes once it was read.
"""

from qbus.service.toml.documents import MAX_BYTES, Loader, merged, parse, read_file, to_toml
from qbus.service.toml.fields import (
    Rule,
    Setting,
    read_fields,
    required,
    setting,
    settings_of,
    to_document,
)

__all__ = [
    "MAX_BYTES",
    "Loader",
    "Rule",
    "Setting",
    "merged",
    "parse",
    "read_fields",
    "read_file",
    "required",
    "setting",
    "settings_of",
    "to_document",
    "to_toml",
]
