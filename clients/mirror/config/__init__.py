"""The configuration of a mirror: from which datacenters into which one, which topics, and how.

:class:`MirrorConfig` is read from TOML (:func:`parse`), checked, and never changes: another one
replaces it as a whole. :func:`links` returns the part of each link.
"""

from qbus.service.toml import to_document, to_toml

from .config import (
    Fallback,
    Groups,
    MirrorConfig,
    Source,
    Target,
    Topics,
    Transfer,
    load,
    parse,
    read,
)
from .link import LinkConfig, Selection, links

__all__ = [
    "Fallback",
    "Groups",
    "LinkConfig",
    "MirrorConfig",
    "Selection",
    "Source",
    "Target",
    "Topics",
    "Transfer",
    "links",
    "load",
    "parse",
    "read",
    "to_document",
    "to_toml",
]
