"""The configuration of an agent: which files go to which topics, and how.

:class:`AgentConfig` is read from TOML (:func:`parse`), checked, and never changes: another one
replaces it as a whole.
"""

from qbus.service.toml import to_document, to_toml

from .config import (
    AgentConfig,
    Delivery,
    Source,
    SpoolSource,
    Tailing,
    load,
    parse,
    read,
)
from .template import Bound, Template

__all__ = [
    "AgentConfig",
    "Bound",
    "Delivery",
    "Source",
    "SpoolSource",
    "Tailing",
    "Template",
    "load",
    "parse",
    "read",
    "to_document",
    "to_toml",
]
